package console

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// The snippets of agents have the window, or say that it is a guess. Claude Code needs its variables even if the
// deployment has all of its names: it assumes windows for them. It does not check itself what the gateway checks.
func TestSnippetsOfADeployment(t *testing.T) {
	for window, want := range map[int]string{0: "65536", 2048: "2048", 262144: "262144"} {
		var d manage.Deployment
		d.Name, d.AlsoAs, d.ContextWindow = "qwen3", []string{"claude-*"}, window
		parts, agents := map[string]bool{}, 0
		for _, s := range snippetsOf(d, manage.Endpoint{URL: "https://gw.example.com"}, "") {
			for i, p := range s.Parts {
				if parts[p.Name] || p.Code == "" {
					t.Errorf("two parts are named %s, or it has no code", p.Name)
				}
				parts[p.Name] = true
				if guess := window == 0 && s.Agent && i == 0; strings.Contains(p.Hint, "Measure") != guess {
					t.Errorf("window %d: %s has the hint %q", window, p.Name, p.Hint)
				}
			}
			if s.Agent {
				agents++
				if code := s.Parts[0].Code; !strings.Contains(code, want) && s.ID != "copilot" {
					t.Errorf("window %d: no %s in %s", window, want, code)
				}
			}
			if s.ID == "claude" && (!strings.Contains(s.Parts[0].Code, "AUTO_MODE") ||
				!strings.Contains(s.Parts[0].Code, "ANTHROPIC_DEFAULT_HAIKU_MODEL=qwen3\n")) {
				t.Errorf("Claude Code has %s", s.Parts[0].Code)
			}
		}
		if agents != 7 || len(parts) != 16 {
			t.Errorf("%d agents, %d parts", agents, len(parts))
		}
	}
	var d manage.Deployment
	d.Options.Safeguards = "self"
	for _, s := range snippetsOf(d, manage.Endpoint{URL: "https://gw.example.com"}, "sk-svc-abc") {
		for _, p := range s.Parts {
			if strings.Contains(p.Code, "AUTO_MODE") || !strings.Contains(p.Code, "sk-svc-abc") {
				t.Errorf("%s with a judge and a key: %s", p.Name, p.Code)
			}
		}
	}
}
