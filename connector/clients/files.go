package clients

import "strconv"

// The settings files of clients. The key is a member, not a variable of the shell: that would be one more thing to
// set, and would end with the shell.

// The environment variables with a file of authorities. Node trusts its own ones, too; OpenSSL, Go and Rust do not.
const (
	nodeCA    = "NODE_EXTRA_CA_CERTS"
	opensslCA = "SSL_CERT_FILE"
)

// member returns a member to set; nil removes it.
func member(value any, path ...string) Member { return Member{Path: path, Value: value} }

// initial returns a member whose existing value stays.
func initial(value any, path ...string) Member {
	return Member{Path: path, Value: value, Default: true}
}

var claudeFile = &File{
	Env: "CLAUDE_CONFIG_DIR", Folder: ".claude", Paths: []string{"settings.json"}, Format: JSON,
	Login: ".credentials.json",
	Members: func(v Values) []Member {
		members := append([]Member{member(v.Model, "model"), member(nil, "apiKeyHelper")}, claudeEnv(v)...)
		if v.CA != "" {
			members = append(members, member(v.CA, "env", nodeCA))
		}
		return members
	},
}

// claudeEnv returns the variables of Claude Code. Without them, it requests models of its vendor, for subagents and for
// the check of auto mode. It does not ask for the context window, and ignores MAX_CONTEXT_TOKENS for models of its
// vendor. It compacts when the rest of the window is less than MAX_OUTPUT_TOKENS and 13,000 more.
func claudeEnv(v Values) []Member {
	var server, judge any = "0", v.Model // Claude Code checks tool calls itself
	if v.Judged {
		server, judge = nil, nil
	}
	return []Member{
		member(v.Base, "env", "ANTHROPIC_BASE_URL"),
		member(v.Key, "env", "ANTHROPIC_AUTH_TOKEN"),
		member("", "env", "ANTHROPIC_API_KEY"), // one in the environment would be sent to the gateway, too
		member(v.Model, "env", "ANTHROPIC_DEFAULT_HAIKU_MODEL"),
		member(v.Model, "env", "ANTHROPIC_DEFAULT_SONNET_MODEL"),
		member(v.Model, "env", "ANTHROPIC_DEFAULT_OPUS_MODEL"),
		member(v.Model, "env", "ANTHROPIC_DEFAULT_FABLE_MODEL"),
		member(server, "env", "CLAUDE_CODE_AUTO_MODE_SERVER"),
		member(judge, "env", "CLAUDE_CODE_AUTO_MODE_MODEL"),
		member(strconv.Itoa(v.Tokens()), "env", "CLAUDE_CODE_MAX_CONTEXT_TOKENS"),
		member(strconv.Itoa(v.Output()), "env", "CLAUDE_CODE_MAX_OUTPUT_TOKENS"),
		// Each of them would win over the gateway or the model.
		member(nil, "env", "ANTHROPIC_MODEL"),
		member(nil, "env", "CLAUDE_CODE_USE_BEDROCK"),
		member(nil, "env", "CLAUDE_CODE_USE_FOUNDRY"),
		member(nil, "env", "CLAUDE_CODE_USE_VERTEX"),
	}
}

var codexFile = &File{
	Env: "CODEX_HOME", Folder: ".codex", Paths: []string{"config.toml"}, Format: TOML,
	Login: "auth.json", CAEnv: opensslCA,
	Members: func(v Values) []Member {
		return []Member{
			member(v.Model, "model"),
			member(v.Provider(), "model_provider"),
			member(v.Tokens(), "model_context_window"),
			member("Postern "+v.Host(), "model_providers", v.Provider(), "name"),
			member(v.Base+"/v1", "model_providers", v.Provider(), "base_url"),
			member("responses", "model_providers", v.Provider(), "wire_api"),
			member(v.Key, "model_providers", v.Provider(), "experimental_bearer_token"),
		}
	},
}

var opencodeFile = &File{
	Env: "XDG_CONFIG_HOME", Folder: ".config", Paths: []string{"opencode/opencode.jsonc", "opencode/opencode.json"},
	Format: JSON, CAEnv: nodeCA,
	Members: func(v Values) []Member {
		return []Member{
			initial("https://opencode.ai/config.json", "$schema"),
			member(v.Provider()+"/"+v.Model, "model"),
			member("@ai-sdk/openai-compatible", "provider", v.Provider(), "npm"),
			member("Postern "+v.Host(), "provider", v.Provider(), "name"),
			member(v.Base+"/v1", "provider", v.Provider(), "options", "baseURL"),
			member(v.Key, "provider", v.Provider(), "options", "apiKey"),
			member(v.Tokens(), "provider", v.Provider(), "models", v.Model, "limit", "context"),
			member(v.Output(), "provider", v.Provider(), "models", v.Model, "limit", "output"),
		}
	},
}

var continueFile = &File{
	Env: "CONTINUE_GLOBAL_DIR", Folder: ".continue", Paths: []string{"config.yaml"}, Format: YAML,
	Login: "auth.json",
	Members: func(v Values) []Member {
		name := v.Model + " at " + v.Host()
		members := []Member{
			initial("Postern", "name"), initial("1.0.0", "version"), initial("v1", "schema"),
			member(name, "models", name, "name"),
			member("openai", "models", name, "provider"),
			member(v.Model, "models", name, "model"),
			member(v.Base+"/v1", "models", name, "apiBase"),
			member(v.Key, "models", name, "apiKey"),
			member([]string{"chat", "edit", "apply"}, "models", name, "roles"),
			member(v.Tokens(), "models", name, "defaultCompletionOptions", "contextLength"),
			member(v.Output(), "models", name, "defaultCompletionOptions", "maxTokens"),
		}
		if v.CA != "" {
			members = append(members, member(v.CA, "models", name, "requestOptions", "caBundlePath"))
		}
		return members
	},
}

// clineFile sets Cline's only provider with a base URL: another gateway replaces it.
var clineFile = &File{
	Env: "CLINE_DATA_DIR", Folder: ".cline/data", Paths: []string{"settings/providers.json"}, Format: JSON,
	CAEnv: nodeCA,
	Members: func(v Values) []Member {
		const id = "openai-compatible"
		return []Member{
			initial(1, "version"),
			member(id, "lastUsedProvider"),
			member(id, "providers", id, "settings", "provider"),
			member(v.Key, "providers", id, "settings", "apiKey"),
			member(v.Model, "providers", id, "settings", "model"),
			member(v.Base+"/v1", "providers", id, "settings", "baseUrl"),
			member(v.Tokens(), "providers", id, "settings", "contextWindow"),
			member(v.Output(), "providers", id, "settings", "maxTokens"),
			initial("2026-01-01T00:00:00.000Z", "providers", id, "updatedAt"),
			member("manual", "providers", id, "tokenSource"),
		}
	},
}

var qwenFile = &File{
	Env: "QWEN_HOME", Folder: ".qwen", Paths: []string{"settings.json"}, Format: JSON, CAEnv: nodeCA,
	Members: func(v Values) []Member {
		return []Member{
			member("openai", "security", "auth", "selectedType"),
			member(v.Key, "security", "auth", "apiKey"),
			member(v.Base+"/v1", "security", "auth", "baseUrl"),
			member(v.Model, "model", "name"),
			member(v.Tokens(), "model", "generationConfig", "contextWindowSize"),
			member(v.Output(), "model", "generationConfig", "samplingParams", "max_tokens"),
		}
	},
}
