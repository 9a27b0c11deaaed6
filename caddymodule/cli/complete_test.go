package cli

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/caddymodule/cli/up"
)

// completed returns what a shell offers at the end of `caddy gateway args…`.
func completed(t *testing.T, args ...string) string {
	t.Helper()
	root, gateway := &cobra.Command{Use: "caddy"}, &cobra.Command{}
	commands(up.Host{}).build(gateway, environment{})
	root.AddCommand(gateway)
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(append([]string{"__complete", "gateway"}, args...))
	if err := root.ExecuteContext(t.Context()); err != nil || strings.Contains(errs.String(), "Error") {
		t.Errorf("%v: %v, %s", args, err, &errs)
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// Shells complete names of records, fixed values or nothing, and names of files only where one is due. Without a
// gateway they complete nothing, silently.
func TestCompletion(t *testing.T) {
	server := httptest.NewServer(&fakeAdmin{answers: map[string]adminAnswer{
		"GET /model_gateway/keys":                  {200, `[{"id":"key_1","name":"laptop"},{"id":"key_2","name":"ci"}]`},
		"GET /model_gateway/connectors":            {200, `[{"id":"con_1","name":"rack"}]`},
		"GET /model_gateway/deployments":           {200, `[{"name":"qwen3:8b"}]`},
		"GET /model_gateway/deployments?account=b": {200, `[{"name":"other"}]`},
		"GET /model_gateway/tokens":                {200, `[{"id":"tok_1","name":"ci"}]`},
		"GET /model_gateway/accounts":              {200, `[{"id":"b","name":"b"}]`},
		"GET /model_gateway/users":                 {200, `[{"id":"usr_1","name":"anna"}]`},
	}})
	defer server.Close()
	at := "--address=" + strings.TrimPrefix(server.URL, "http://")
	for _, c := range []struct{ args, want string }{
		{"key revoke |", "laptop ci :4"},
		{"key revoke laptop |", ":4"},
		{"key create --name |", ":4"},
		{"key list --sort |", "name owner used expires :4"},
		{"key setup |", "claude codex opencode continue cline qwen :4"},
		{"deployment set |", "qwen3:8b :4"},
		{"deployment set --account b |", "other :4"},
		{"deployment set x --connector |", "rack :4"},
		{"deployment set x --model |", ":4"},
		{"deployment set x --option think|", "think_tags= :4"},
		{"deployment set x --kind |", "chat embeddings rerank transcription speech image :4"},
		{"connector rotate |", "rack :4"},
		{"token revoke |", "tok_1 :4"},
		{"account set |", "b :4"},
		{"user remove x --keys |", "revoke keep give= :4"},
		{"activity --status |", "ok failed refused client :4"},
		{"activity --model |", "qwen3:8b :4"},
		{"usage --by |", "hour day user key model :4"},
		{"audit --by |", "anna :4"},
		{"backup |", ":0"},
		{"key list --config |", ":0"},
	} {
		words := strings.Fields(strings.TrimSuffix(c.args, "|"))
		if strings.HasSuffix(c.args, " |") {
			words = append(words, "")
		}
		command := 1
		for !strings.HasPrefix(words[command], "-") && words[command] != "" && command < 2 {
			command++
		}
		got := completed(t, append(append([]string{}, words[:command]...), append([]string{at}, words[command:]...)...)...)
		if strings.Contains(c.args, "think|") { // the shell selects
			got = strings.Join(strings.Fields(got)[len(strings.Fields(got))-1:], " ")
			c.want = ":4"
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
	server.Close()
	if got := completed(t, "key", "revoke", at, ""); got != ":4" {
		t.Errorf("without a gateway: %q", got)
	}
}
