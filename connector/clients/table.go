package clients

// clients are all clients, in display order.
var clients = []Client{
	{ID: "claude", Title: "Claude Code", Agent: true, Dialect: "messages", Files: []File{claudeFile}},
	{ID: "codex", Title: "Codex", Agent: true, Dialect: "responses", WithV1: true, Files: []File{codexFile}},
	{ID: "opencode", Title: "opencode", Agent: true, Dialect: "chat", WithV1: true, Files: []File{opencodeFile}},
	{ID: "continue", Title: "Continue", Agent: true, Dialect: "chat", WithV1: true, Files: []File{continueFile}},
	{ID: "cline", Title: "Cline", Agent: true, Dialect: "chat", WithV1: true, Files: []File{clineFile}},
}

// All returns the clients in display order.
func All() []Client { return clients }

// Find returns the client with an id.
func Find(id string) (Client, bool) {
	for _, c := range clients {
		if c.ID == id {
			return c, true
		}
	}
	return Client{}, false
}
