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
		Notes:  "It has the responses API, too, with the same two settings. Other languages have them as well.",
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
		Notes: "It uses further models for small tasks, for subagents and for the check of auto mode: the variables set " +
			"all of them. It does not ask for the context window, which it otherwise assumes to be a million tokens. It " +
			"uses some 10,000 itself, and compacts a conversation when the rest of the window is less than the longest " +
			"answer and 13,000 tokens: it needs 32,768, better 65,536. In auto mode, it checks actions with requests of its " +
			"own, unless the deployment has the [option](dialects.md#auto-mode-of-claude-code) `safeguards`: then leave out " +
			"the variables with `AUTO_MODE`.",
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
		Notes: "It compacts a conversation at 90% of `model_context_window`, and never because a prompt was refused.",
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
		Notes:  "The file serves the extensions and the command `cn`, which use the first model.",
		Parts:  []Part{{Name: "continue-file", Hint: "In ~/.continue/config.yaml:", File: 1}},
	},
	{
		ID: "cline", Title: "Cline", Agent: true, Dialect: "chat", WithV1: true, Files: []File{clineFile},
		Errors: "It shows the gateway's text, after 5xx when it has tried again for nearly two minutes. Warnings of the " +
			"AI SDK need nothing.",
		Notes: "The file is of the command `cline`, which has one provider with a base URL. In the extension, choose " +
			"*OpenAI Compatible* in its settings, with the same base URL, key, model and window.",
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
		Notes:  "It needs no account of GitHub. In PowerShell: `$env:COPILOT_MODEL = \"…\"`, and so on.",
		Parts:  []Part{{Name: "copilot", Hint: shell}},
	},
	{
		ID: "webui", Title: "Open WebUI", Dialect: "chat", WithV1: true,
		Errors: "It shows the gateway's text in place of the answer.",
		Notes:  "One key serves all of its users: their limits and their use are one.",
		Parts: []Part{{Name: "webui", Hint: "Starts a new container. In an existing installation: Admin Panel, Settings, " +
			"Connections, add an OpenAI connection with the URL and key below. Then pick the model in the list:"}},
	},
	{
		ID: "kilo", Title: "Kilo", Agent: true, Dialect: "chat", WithV1: true,
		Notes: "`~/.config/kilo/kilo.json` has the members of opencode's file.",
	},
	{
		ID: "droid", Title: "Droid", Agent: true, Dialect: "chat", WithV1: true,
		Notes: "`~/.factory/settings.json`: an entry of `customModels` with `model`, `displayName`, `baseUrl`, `apiKey`, " +
			"`\"provider\": \"generic-chat-completion-api\"` and `maxOutputTokens`. Choose it with `/model`.",
	},
	{
		ID: "pi", Title: "pi", Agent: true, Dialect: "chat", WithV1: true,
		Notes: "`~/.pi/agent/models.json`: a provider with `\"api\": \"openai-completions\"`, `baseUrl`, `apiKey` and " +
			"`models`, each with `id` and `contextWindow`.",
	},
	{
		ID: "zed", Title: "Zed", Agent: true, Dialect: "chat", WithV1: true,
		Notes: "`language_models.openai_compatible` of its settings: a provider with `api_url` and `available_models`, " +
			"each with `name`, `max_tokens` (the window) and `max_output_tokens`. The key belongs into Agent Settings, LLM " +
			"Providers.",
	},
	{
		ID: "vscode", Title: "VS Code", Agent: true, Dialect: "chat", WithV1: true,
		Notes: "*Chat: Manage Language Models*, Add, *Custom Endpoint*, with the type `chat-completions`. The `url` of a " +
			"model is the base URL and `/chat/completions`; `maxInputTokens` and `maxOutputTokens` together are the window.",
	},
	{
		ID: "cursor", Title: "Cursor", Agent: true, Dialect: "chat", WithV1: true,
		Errors: "A 400 \"Missing required parameter: messages\" means that Cursor sends the body of another API to this " +
			"path, which the gateway does not serve.",
		Notes: "Settings, Models, *Override OpenAI Base URL*. Its requests come from its vendor's servers: the gateway " +
			"needs a public address, and prompts pass through them.",
	},
	{
		ID: "langchain", Title: "LangChain", Dialect: "chat", WithV1: true, Embeds: true,
		Notes: "`ChatOpenAI(model=…, base_url=…, api_key=…)`, or `ChatAnthropic`, with a base URL without `/v1`.",
	},
	{
		ID: "aisdk", Title: "AI SDK", Dialect: "chat", WithV1: true, Embeds: true,
		Notes: "`createOpenAICompatible({ name, baseURL, apiKey })` of `@ai-sdk/openai-compatible`; `createAnthropic` " +
			"has a base URL with `/v1`, too.",
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
