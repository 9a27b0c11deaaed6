package clients

import "strconv"

// The settings files of clients. Their members have the key: a variable of the shell would be one more thing to set,
// and would end with the shell.

var claudeFile = File{
	Env: "CLAUDE_CONFIG_DIR", Folder: ".claude", Paths: []string{"settings.json"}, Format: JSON,
	Login: ".credentials.json",
	Members: func(v Values) []Member {
		members := []Member{{Path: []string{"model"}, Value: v.Model}}
		for _, e := range claudeEnv(v) {
			members = append(members, Member{Path: []string{"env", e.Name}, Value: e.Value})
		}
		// Each of them would win over the gateway, or be left from a run before.
		for _, name := range []string{
			"ANTHROPIC_API_KEY", "ANTHROPIC_MODEL", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_FOUNDRY",
			"CLAUDE_CODE_USE_VERTEX",
		} {
			members = append(members, Member{Path: []string{"env", name}})
		}
		if v.Judged {
			for _, e := range autoMode(v) {
				members = append(members, Member{Path: []string{"env", e.Name}})
			}
		}
		return append(members, Member{Path: []string{"apiKeyHelper"}})
	},
}

// variable is an environment variable.
type variable struct{ Name, Value string }

// claudeEnv returns the variables of Claude Code. It otherwise requests models of its vendor, for subagents and for the
// check of auto mode. It does not ask for the context window, and ignores MAX_CONTEXT_TOKENS for models of its vendor.
// It compacts when the rest of the window is less than MAX_OUTPUT_TOKENS and 13,000 more.
func claudeEnv(v Values) []variable {
	env := []variable{
		{"ANTHROPIC_BASE_URL", v.Base},
		{"ANTHROPIC_AUTH_TOKEN", v.Key},
		{"ANTHROPIC_DEFAULT_HAIKU_MODEL", v.Model},
		{"ANTHROPIC_DEFAULT_SONNET_MODEL", v.Model},
		{"ANTHROPIC_DEFAULT_OPUS_MODEL", v.Model},
		{"ANTHROPIC_DEFAULT_FABLE_MODEL", v.Model},
	}
	if !v.Judged {
		env = append(env, autoMode(v)...)
	}
	if v.CA != "" {
		env = append(env, variable{"NODE_EXTRA_CA_CERTS", v.CA})
	}
	return append(env,
		variable{"CLAUDE_CODE_MAX_CONTEXT_TOKENS", strconv.Itoa(v.Tokens())},
		variable{"CLAUDE_CODE_MAX_OUTPUT_TOKENS", strconv.Itoa(v.Output())})
}

// autoMode returns the variables with which Claude Code checks tool calls itself, if the gateway does not.
func autoMode(v Values) []variable {
	return []variable{{"CLAUDE_CODE_AUTO_MODE_SERVER", "0"}, {"CLAUDE_CODE_AUTO_MODE_MODEL", v.Model}}
}

var codexFile = File{
	Env: "CODEX_HOME", Folder: ".codex", Paths: []string{"config.toml"}, Format: TOML,
	Login: "auth.json",
	Members: func(v Values) []Member {
		provider := func(name string, value any) Member {
			return Member{Path: []string{"model_providers", v.Provider(), name}, Value: value}
		}
		return []Member{
			{Path: []string{"model"}, Value: v.Model},
			{Path: []string{"model_provider"}, Value: v.Provider()},
			{Path: []string{"model_context_window"}, Value: v.Tokens()},
			provider("name", "Postern "+v.Host()),
			provider("base_url", v.Base+"/v1"),
			provider("wire_api", "responses"),
			provider("experimental_bearer_token", v.Key),
		}
	},
}

var opencodeFile = File{
	Env: "XDG_CONFIG_HOME", Folder: ".config", Paths: []string{"opencode/opencode.jsonc", "opencode/opencode.json"},
	Format: JSON,
	Members: func(v Values) []Member {
		at := func(value any, path ...string) Member {
			return Member{Path: append([]string{"provider", v.Provider()}, path...), Value: value}
		}
		return []Member{
			{Path: []string{"$schema"}, Value: "https://opencode.ai/config.json", Default: true},
			{Path: []string{"model"}, Value: v.Provider() + "/" + v.Model},
			at("@ai-sdk/openai-compatible", "npm"),
			at("Postern "+v.Host(), "name"),
			at(v.Base+"/v1", "options", "baseURL"),
			at(v.Key, "options", "apiKey"),
			at(v.Tokens(), "models", v.Model, "limit", "context"),
			at(v.Output(), "models", v.Model, "limit", "output"),
		}
	},
}

var continueFile = File{
	Env: "CONTINUE_GLOBAL_DIR", Folder: ".continue", Paths: []string{"config.yaml"}, Format: YAML,
	Login: "auth.json",
	Members: func(v Values) []Member {
		return []Member{
			{Path: []string{"name"}, Value: "Postern", Default: true},
			{Path: []string{"version"}, Value: "1.0.0", Default: true},
			{Path: []string{"schema"}, Value: "v1", Default: true},
			{Path: []string{"models"}, Item: "name", Element: []Member{
				{Path: []string{"name"}, Value: v.Model + " at " + v.Host()},
				{Path: []string{"provider"}, Value: "openai"},
				{Path: []string{"model"}, Value: v.Model},
				{Path: []string{"apiBase"}, Value: v.Base + "/v1"},
				{Path: []string{"apiKey"}, Value: v.Key},
				{Path: []string{"roles"}, Value: []string{"chat", "edit", "apply"}},
				{Path: []string{"defaultCompletionOptions", "contextLength"}, Value: v.Tokens()},
				{Path: []string{"defaultCompletionOptions", "maxTokens"}, Value: v.Output()},
			}},
		}
	},
}

// clineFile sets Cline's only provider with a base URL: another gateway replaces it.
var clineFile = File{
	Env: "CLINE_DATA_DIR", Folder: ".cline/data", Paths: []string{"settings/providers.json"}, Format: JSON,
	Members: func(v Values) []Member {
		const id = "openai-compatible"
		at := func(name string, value any) Member {
			return Member{Path: []string{"providers", id, "settings", name}, Value: value}
		}
		return []Member{
			{Path: []string{"version"}, Value: 1, Default: true},
			{Path: []string{"lastUsedProvider"}, Value: id},
			at("provider", id), at("apiKey", v.Key), at("model", v.Model), at("baseUrl", v.Base+"/v1"),
			at("contextWindow", v.Tokens()), at("maxTokens", v.Output()),
			{Path: []string{"providers", id, "updatedAt"}, Value: "2026-01-01T00:00:00.000Z", Default: true},
			{Path: []string{"providers", id, "tokenSource"}, Value: "manual"},
		}
	},
}

var qwenFile = File{
	Env: "QWEN_HOME", Folder: ".qwen", Paths: []string{"settings.json"}, Format: JSON,
	Members: func(v Values) []Member {
		return []Member{
			{Path: []string{"security", "auth", "selectedType"}, Value: "openai"},
			{Path: []string{"security", "auth", "apiKey"}, Value: v.Key},
			{Path: []string{"security", "auth", "baseUrl"}, Value: v.Base + "/v1"},
			{Path: []string{"model", "name"}, Value: v.Model},
			{Path: []string{"model", "generationConfig", "contextWindowSize"}, Value: v.Tokens()},
			{Path: []string{"model", "generationConfig", "samplingParams", "max_tokens"}, Value: v.Output()},
		}
	},
}
