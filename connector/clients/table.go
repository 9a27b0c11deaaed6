package clients

const (
	shell   = "In the shell where you start it:"
	toPath  = " to its full path"
	openssl = "set " + opensslCA + toPath
	node    = "set " + nodeCA + toPath
	windows = `run Import-Certificate root.crt -CertStoreLocation Cert:\CurrentUser\Root`
)

// clients are all clients, in display order.
var clients = []Client{
	{
		ID: "curl", Title: "curl", AllKinds: true, Dialect: "chat",
		Parts: []Snippet{
			{Name: "curl", Hint: "In a shell of Linux or macOS:"},
			{Name: "powershell", Hint: "In PowerShell, which shows the answer when it is complete:", CA: windows},
		},
	},
	{
		ID: "openai", Title: "OpenAI SDK", AllKinds: true, Dialect: "chat",
		Parts: []Snippet{
			{Name: "openai-python", Hint: "Python, after pip install openai:", CA: openssl},
			{Name: "openai-node", Hint: "Node, in a file .mjs, after npm install openai:", CA: node},
			{Name: "openai-go", Hint: "Go, after go get github.com/openai/openai-go/v3:", CA: openssl},
		},
	},
	{
		ID: "anthropic", Title: "Anthropic SDK", Dialect: "messages",
		Parts: []Snippet{
			{Name: "anthropic-python", Hint: "Python, after pip install anthropic:", CA: openssl},
			{Name: "anthropic-node", Hint: "TypeScript, in a file .mts or .mjs, after npm install @anthropic-ai/sdk:", CA: node},
		},
	},
	{
		ID: "claude", Title: "Claude Code", Agent: true, Dialect: "messages", File: claudeFile, MinWindow: 32768,
		Parts: []Snippet{{Name: "claude", Hint: shell}},
	},
	{ID: "codex", Title: "Codex", Agent: true, Dialect: "responses", File: codexFile, MinWindow: 16384},
	{ID: "opencode", Title: "opencode", Agent: true, Dialect: "chat", File: opencodeFile, MinWindow: 16384},
	{ID: "continue", Title: "Continue", Agent: true, Dialect: "chat", File: continueFile},
	{ID: "cline", Title: "Cline", Agent: true, Dialect: "chat", File: clineFile, MinWindow: 16384},
	{ID: "qwen", Title: "Qwen Code", Agent: true, Dialect: "chat", File: qwenFile, MinWindow: 16384},
	{
		ID: "copilot", Title: "Copilot CLI", Agent: true, Dialect: "chat", MinWindow: 16384,
		Parts: []Snippet{{Name: "copilot", Hint: shell}},
	},
	{
		ID: "webui", Title: "Open WebUI", Dialect: "chat",
		Parts: []Snippet{{Name: "webui", Hint: "Starts a new container. In an existing installation: Admin Panel, " +
			"Settings, Connections, add an OpenAI connection with the URL and key below. Then pick the model in the list:"}},
	},
}

// All returns the clients in display order.
func All() []Client { return clients }

// WithFile returns the ids of the clients that `connector use` can set up.
func WithFile() (ids []string) {
	for _, c := range clients {
		if c.File != nil {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// Find returns the client with an id, or the zero value.
func Find(id string) Client {
	for _, c := range clients {
		if c.ID == id {
			return c
		}
	}
	return Client{}
}
