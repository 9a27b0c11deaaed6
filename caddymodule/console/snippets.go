package console

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// keyPlaceholder stands where a snippet wants a key that the page does not
// have: keys are shown once only.
const keyPlaceholder = "sk-svc-YOUR-KEY"

// snippet is what one client needs to use a deployment.
type snippet struct {
	ID    string // unique in the list, for ids of elements
	Title string
	Parts []snippetPart
}

// snippetPart is one thing to copy.
type snippetPart struct {
	ID   string
	Hint string // where it goes; may be empty
	Code string
}

// snippets are made for the deployment model of the gateway at base, which
// has no /v1 and no slash at its end. Names and keys go through the quoting
// of the language that they stand in, so that none can be more than a string
// there.
func snippets(base, model, key string) []snippet {
	if key == "" {
		key = keyPlaceholder
	}
	return []snippet{
		oneSnippet("curl", "curl", "In a shell of Linux or macOS:", curlSnippet(base, model, key)),
		oneSnippet("sdk", "OpenAI SDK", "Python, after pip install openai. The other languages take the same two settings.", sdkSnippet(base, model, key)),
		oneSnippet("claude", "Claude Code", "In the shell that you start it from:", claudeSnippet(base, model, key)),
		{ID: "codex", Title: "Codex", Parts: []snippetPart{
			{ID: "codex-file", Hint: "At the beginning of ~/.codex/config.toml:", Code: codexSnippet(base, model)},
			{ID: "codex-shell", Hint: "In the shell that you start it from:", Code: "export POSTERN_API_KEY=" + shellWord(key) + "\ncodex"},
		}},
		oneSnippet("webui", "Open WebUI", webUIHint(model), webUISnippet(base, key)),
	}
}

func oneSnippet(id, title, hint, code string) snippet {
	return snippet{ID: id, Title: title, Parts: []snippetPart{{ID: id + "-code", Hint: hint, Code: code}}}
}

func curlSnippet(base, model, key string) string {
	body := `{"model": ` + quote(model) + `, "stream": true, "messages": [{"role": "user", "content": "Say hello."}]}`
	return "curl -N " + shellWord(base+"/v1/chat/completions") + " \\\n" +
		"  -H " + shellQuote("Authorization: Bearer "+key) + " \\\n" +
		"  -H 'Content-Type: application/json' \\\n" +
		"  -d " + shellQuote(body)
}

func sdkSnippet(base, model, key string) string {
	return fmt.Sprintf(`from openai import OpenAI

client = OpenAI(base_url=%s, api_key=%s)
stream = client.chat.completions.create(
    model=%s,
    messages=[{"role": "user", "content": "Say hello."}],
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
`, quote(base+"/v1"), quote(key), quote(model))
}

// claudeSnippet sets the small model, too: Claude Code would else ask for one
// that the gateway does not have.
func claudeSnippet(base, model, key string) string {
	return "export ANTHROPIC_BASE_URL=" + shellWord(base) + "\n" +
		"export ANTHROPIC_AUTH_TOKEN=" + shellWord(key) + "\n" +
		"export ANTHROPIC_DEFAULT_HAIKU_MODEL=" + shellWord(model) + "\n" +
		"claude --model=" + shellWord(model)
}

func codexSnippet(base, model string) string {
	return fmt.Sprintf(`model = %s
model_provider = "postern"

[model_providers.postern]
name = "Postern"
base_url = %s
env_key = "POSTERN_API_KEY"
wire_api = "responses"
`, quote(model), quote(base+"/v1"))
}

func webUIHint(model string) string {
	return "A new one in a container. In one that runs already: Admin Panel, Settings, Connections, add an OpenAI connection with the URL and key below. Then pick " + model + " in the list of models."
}

// webUISnippet runs Open WebUI in a container. On loopback it has to share
// the host's network, and to leave the gateway its port.
func webUISnippet(base, key string) string {
	network := "-p 3000:8080"
	if loopback(base) {
		network = "--network=host -e PORT=3000"
	}
	return "docker run -d --name open-webui " + network + " \\\n" +
		"  -e OPENAI_API_BASE_URL=" + shellWord(base+"/v1") + " \\\n" +
		"  -e OPENAI_API_KEY=" + shellWord(key) + " \\\n" +
		"  -v open-webui:/app/backend/data \\\n" +
		"  ghcr.io/open-webui/open-webui:main"
}

// loopback reports whether only this machine reaches the gateway at base.
func loopback(base string) bool {
	u, err := url.Parse(base)
	if err != nil {
		return false
	}
	host := u.Hostname()
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// quote writes s as a string literal that JSON, TOML and Python read alike: it
// uses no escape but \", \\ and \uXXXX.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"', r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r <= 0xffff && (r == utf8.RuneError || !unicode.IsPrint(r)):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// shellQuote writes s as one word of a POSIX shell that stands for itself.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// shellWord leaves out the quotes where they are not needed, for the eye.
func shellWord(s string) string {
	plain := s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:/@+-", r)
	})
	if plain {
		return s
	}
	return shellQuote(s)
}

// powerShellQuote writes s as a string of PowerShell that stands for itself.
// PowerShell takes typographic quotes for quotes, too.
func powerShellQuote(s string) string {
	var b strings.Builder
	b.WriteByte('\'')
	for _, r := range s {
		if strings.ContainsRune("'‘’‚‛", r) {
			b.WriteRune(r)
		}
		b.WriteRune(r)
	}
	b.WriteByte('\'')
	return b.String()
}
