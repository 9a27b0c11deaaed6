package manage_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// entries returns the audit log, newest first.
func entries(t *testing.T, g *gateway, caller manage.Caller) []manage.AuditEntry {
	t.Helper()
	list, err := g.service.Audit(manage.WithCaller(t.Context(), caller), manage.Audit{})
	must(t, err)
	return list
}

// An entry says who did what, with the names that the records had at the time.
func TestAuditSentences(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	said := func(want string, links ...string) {
		t.Helper()
		e := entries(t, g, anna)[0]
		var linked []string
		text := ""
		for _, p := range e.Parts {
			text += p.Text
			if p.Kind != "" {
				linked = append(linked, p.Kind+" "+p.Text)
			}
		}
		if e.Text != want || text != want || strings.Join(linked, "; ") != strings.Join(links, "; ") {
			t.Errorf("%q, links %q; want %q, %q", e.Text, linked, want, links)
		}
	}
	for _, name := range []string{"gpu-box", "mac"} {
		g.doAs(anna, "POST", "/connectors", `{"name":"`+name+`"}`)
	}
	said("anna created the connector mac", "usr anna", "con mac")
	g.doAs(anna, "PUT", "/deployments/llama3.2", `{"connector":"gpu-box"}`)
	said("anna published llama3.2 on gpu-box", "usr anna", "model llama3.2", "con gpu-box")
	g.doAs(anna, "PUT", "/deployments/llama3.2", `{"connector":"mac"}`)
	said("anna moved llama3.2 from gpu-box to mac", "usr anna", "model llama3.2", "con gpu-box", "con mac")
	g.doAs(anna, "PUT", "/deployments/llama3.2", `{"connectors":["gpu-box","mac"]}`)
	said("anna changed the model llama3.2: connectors mac → gpu-box, mac",
		"usr anna", "model llama3.2", "con mac", "con gpu-box", "con mac")
	g.doAs(anna, "PUT", "/deployments/llama3.2", `{"max_concurrency":2}`)
	said("anna changed the model llama3.2: max concurrency 2", "usr anna", "model llama3.2")
	g.doAs(anna, "PATCH", "/connectors/mac", `{"name":"studio"}`)
	said("anna renamed the connector mac to studio", "usr anna", "con studio")
	g.doAs(anna, "POST", "/keys", `{"name":"laptop","scope":"*"}`)
	said("anna created the key laptop: owner anna, scope *", "usr anna", "key laptop", "usr anna")
	g.doAs(anna, "PATCH", "/keys/laptop", `{"name":"desk","limits":{"tokens_per_day":9,"requests_per_day":9},"note":"n"}`)
	said("anna changed the key desk: 9 requests per day, 9 tokens per day, name laptop → desk, note n",
		"usr anna", "key desk")
	g.doAs(anna, "PATCH", "/keys/desk",
		`{"limits":{"tokens_per_day":1000000,"tokens_per_month":0},"expires_at":"2036-12-01T15:47:09Z"}`)
	said("anna changed the key desk: expires 1 Dec 2036, 15:47 UTC, tokens per day 9 → 1M", "usr anna", "key desk")
	g.doAs(manage.Caller{Name: "admin endpoint", Operator: true}, "PATCH", "/keys/desk",
		`{"limits":{"tokens_per_day":1500000,"tokens_per_month":1234567}}`)
	said("The operator changed the key desk: tokens per day 1M → 1.5M, 1234567 tokens per month", "key desk")
	if e := entries(t, g, anna)[3]; e.Text != "anna created the key laptop: owner anna, scope *" {
		t.Errorf("before the key was renamed: %q", e.Text)
	}
	g.doAs(anna, "POST", "/groups", `{"name":"team","members":["anna"]}`)
	said("anna created the group team: members anna, scope *", "usr anna", "grp team", "usr anna")
	g.doAs(anna, "PATCH", "/keys/desk", `{"group":"team"}`)
	said("anna changed the key desk: group team", "usr anna", "key desk", "grp team")
	g.doAs(anna, "PATCH", "/groups/team", `{"members":[],"limits":{"tokens_per_day":1000000}}`)
	said("anna changed the group team: 1M tokens per day, members anna → none", "usr anna", "grp team", "usr anna")
	anna.Token, anna.TokenName = "mgt_1", "ci"
	must(t, g.store.AddOperation(t.Context(), "default", store.Operation{
		Kind: "door.open", Name: "front", By: "anna", User: anna.User, TokenName: "ci",
	}))
	said("anna (token ci) door.open front", "usr anna")
}

// Each operation that the gateway records has a sentence.
func TestAuditSentencesOfAll(t *testing.T) {
	texts, err := os.ReadFile("sentences.tmpl")
	must(t, err)
	files, _ := filepath.Glob("*.go")
	files = append(files, "../store/identities.go")
	seen := 0
	for _, name := range files {
		source, err := os.ReadFile(name)
		must(t, err)
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		const call = `(?:Kind:? =? ?|write\{|operation, connector, decide :?= |(?:audit|change\w+|setDraining)\(ctx, )`
		for _, m := range regexp.MustCompile(call+`"(\w+(?:\.\w+)?)"`).FindAllSubmatch(source, -1) {
			seen++
			if !strings.Contains(string(texts), `{{define "`+string(m[1])+`"}}`) {
				t.Errorf("%s: sentences.tmpl lacks %s", name, m[1])
			}
		}
	}
	if defined := strings.Count(string(texts), "{{define") - 2; seen < defined {
		t.Errorf("found %d operations, but %d sentences", seen, defined)
	}
}
