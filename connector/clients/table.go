package clients

import "slices"

const shell = "In the shell where you start it:"

// clients are all clients, in display order.
var clients = []Client{
	{
		ID: "curl", Title: "curl", Embeds: true, Dialect: "chat", WithV1: true,
		Errors: "It prints the body of the answer, which names the problem and the fix.",
		Parts: []Part{
			{Name: "curl", Hint: "In a shell of Linux or macOS:"},
			{Name: "powershell", Hint: "In PowerShell, which shows a whole answer:"},
		},
	},
	{
		ID: "openai", Title: "OpenAI SDK", Embeds: true, Dialect: "chat", WithV1: true,
		Errors: "Its exceptions have the gateway's text and code. It tries again after 408, 409, 429 and 5xx.",
		Parts: []Part{
			{Name: "openai-python", Hint: "Python, after pip install openai:"},
			{Name: "openai-node", Hint: "Node, in a file .mjs, after npm install openai:"},
			{Name: "openai-go", Hint: "Go, after go get github.com/openai/openai-go/v3:"},
		},
	},
	{
		ID: "anthropic", Title: "Anthropic SDK", Dialect: "messages",
		Errors: "Its exceptions have the gateway's text. It tries again after 408, 409, 429 and 5xx.",
		Parts: []Part{
			{Name: "anthropic-python", Hint: "Python, after pip install anthropic:"},
			{Name: "anthropic-node", Hint: "TypeScript, in a file .mts or .mjs, after npm install @anthropic-ai/sdk:"},
		},
	},
	{
		ID: "claude", Title: "Claude Code", Agent: true, Dialect: "messages", Files: []File{claudeFile},
		Errors: "It shows the gateway's text, but not that of a 404, which becomes \"There's an issue with the selected " +
			"model\", also if the base URL is wrong. After 429 and 5xx, it tries again for minutes, without a word with " +
			"`-p`. \"unrecognized_model\" says that it is not a model of its vendor, and needs nothing.",
		Parts: []Part{
			{Name: "claude", Hint: shell},
			{Name: "claude-file", Hint: "Or for good, in ~/.claude/settings.json:", File: 1},
		},
	},
	{
		ID: "codex", Title: "Codex", Agent: true, Dialect: "responses", WithV1: true, Files: []File{codexFile},
		Errors: "It shows the gateway's text after five tries (\"Reconnecting\"), for 400 and 404 at once. \"Model " +
			"metadata not found\" is a warning: Codex has no entry for the model in its own list, and uses general " +
			"instructions.",
		Parts: []Part{{Name: "codex-file", Hint: "In ~/.codex/config.toml, the first lines at its beginning:", File: 1}},
	},
	{
		ID: "opencode", Title: "opencode", Agent: true, Dialect: "chat", WithV1: true, Files: []File{opencodeFile},
		Errors: "It shows the gateway's text, after 5xx when it has tried again for nearly two minutes.",
		Parts:  []Part{{Name: "opencode-file", Hint: "In ~/.config/opencode/opencode.json:", File: 1}},
	},
	{
		ID: "continue", Title: "Continue", Agent: true, Dialect: "chat", WithV1: true, Files: []File{continueFile},
		Errors: "It shows the status and the gateway's text. After 5xx, it tries again for minutes without a word.",
		Parts:  []Part{{Name: "continue-file", Hint: "In ~/.continue/config.yaml:", File: 1}},
	},
	{
		ID: "cline", Title: "Cline", Agent: true, Dialect: "chat", WithV1: true, Files: []File{clineFile},
		Errors: "It shows the gateway's text, after 5xx when it has tried again for nearly two minutes. Warnings of the " +
			"AI SDK need nothing.",
		Parts: []Part{{Name: "cline-file", Hint: "In ~/.cline/data/settings/providers.json:", File: 1}},
	},
	{
		ID: "qwen", Title: "Qwen Code", Agent: true, Dialect: "chat", WithV1: true, Files: []File{qwenFile},
		Errors: "It shows the status and the gateway's text, after 5xx when it has tried again for nearly two minutes.",
		Parts:  []Part{{Name: "qwen-file", Hint: "In ~/.qwen/settings.json:", File: 1}},
	},
	{
		ID: "copilot", Title: "Copilot CLI", Agent: true, Dialect: "chat", WithV1: true,
		Errors: "It shows the gateway's text, but not that of 401 and 404, for which it has advice of its own.",
		Parts:  []Part{{Name: "copilot", Hint: shell}},
	},
	{
		ID: "webui", Title: "Open WebUI", Dialect: "chat", WithV1: true,
		Errors: "It shows the gateway's text in place of the answer.",
		Parts: []Part{{Name: "webui", Hint: "Starts a new container. In an existing installation: Admin Panel, Settings, " +
			"Connections, add an OpenAI connection with the URL and key below. Then pick the model in the list:"}},
	},
}

// All returns the clients in display order.
func All() []Client { return clients }

// Find returns the client with an id.
func Find(id string) (Client, bool) {
	i := slices.IndexFunc(clients, func(c Client) bool { return c.ID == id })
	if i < 0 {
		return Client{}, false
	}
	return clients[i], true
}
