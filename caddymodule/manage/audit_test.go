package manage_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// audited returns the operations in the audit log, newest first.
func audited(t *testing.T, g *gateway, caller manage.Caller,
	query string,
) (operations []string, list []store.Operation) {
	t.Helper()
	answer := g.doAs(caller, "GET", "/audit"+query, "")
	if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil || answer.Code != http.StatusOK {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	for _, o := range list {
		operations = append(operations, strings.TrimSpace(o.Kind+" "+o.Name))
	}
	return operations, list
}

// The audit log has who did what and from where, and no secrets.
func TestAuditList(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	anna.From = "203.0.113.7"
	must(t, errOf(g.store.CreateAccount(t.Context(), "other")))
	olga := g.user("other", "olga")
	secret := g.doAs(anna, "POST", "/keys", `{"name":"laptop","scope":"qwen*"}`).Body.String()
	token, err := g.service.CreateToken(manage.WithCaller(t.Context(), anna),
		manage.CreateToken{Name: "ci", Rights: []string{"keys", "read"}})
	must(t, err)
	program := manage.Caller{
		Account: "default", User: anna.User, Name: anna.Name, Token: token.ID, TokenName: "ci",
		Rights: token.Rights, From: "203.0.113.8",
	}
	g.doAs(program, "DELETE", "/keys/laptop", "")
	g.doAs(olga, "POST", "/keys", `{"name":"theirs"}`)
	root := manage.Caller{Name: "admin endpoint", Operator: true, From: "unix socket"}
	g.doAs(root, "GET", "/backup", "")
	g.doAs(root, "DELETE", "/accounts/other", "") // refused: it has a user and a key

	all, list := audited(t, g, anna, "")
	if want := []string{"backup", "key.revoke laptop", "token.create ci", "key.create laptop"}; !slices.Equal(all, want) {
		t.Fatalf("%q, want %q", all, want)
	}
	created := list[3]
	if created.By != "anna" || created.User != anna.User || created.From != "203.0.113.7" ||
		created.Details["scope"] != "qwen*" || created.Token != "" || created.Time.IsZero() || created.Record == "" {
		t.Errorf("%+v", created)
	}
	if r := list[1]; r.Token != token.ID || r.TokenName != "ci" || r.From != "203.0.113.8" || r.Record != created.Record {
		t.Errorf("%+v", r)
	}
	if r := list[0]; r.By != "admin endpoint" || r.User != "" || r.From != "unix socket" {
		t.Errorf("%+v", r)
	}
	for query, want := range map[string]int{
		"?by=ANNA": 3, "?by=" + anna.User: 3, "?by=ci": 1, "?by=nobody": 0, "?operation=key": 2, "?operation=key.create": 1,
		"?operation=ke":  0,
		"?record=laptop": 2, "?record=" + created.Record: 2, "?to=2020-01-01": 0, "?from=2020-01-01": 4,
		"?from=2200-01-01": 0, "?operation=key&by=ci": 1,
	} {
		if got, _ := audited(t, g, anna, query); len(got) != want {
			t.Errorf("%s: %q, want %d", query, got, want)
		}
	}
	if others, _ := audited(t, g, olga, ""); !slices.Equal(others, []string{"key.create theirs"}) {
		t.Errorf("of another account: %q", others)
	}
	text, _ := json.Marshal(list)
	var key manage.CreatedKey
	if err := json.Unmarshal([]byte(secret), &key); err != nil || key.Key == "" ||
		strings.Contains(string(text), key.Key) || strings.Contains(string(text), token.Token) {
		t.Errorf("a secret is in the list: %s, %v", text, err)
	}
	g.refused(anna, 400, "GET", "/audit?from=yesterday", "", "must be a day")
	if !strings.Contains(g.log.String(), `"from":"203.0.113.7"`) {
		t.Error("the log does not have the address")
	}
}

// Operations on an account are in its list. Its removal is in the list of the gateway.
func TestAuditOfAccounts(t *testing.T) {
	g := newGateway(t)
	root := operator
	g.doAs(root, "POST", "/accounts", `{"id":"team"}`)
	g.doAs(root, "PATCH", "/accounts/team", `{"max_keys":5}`)
	if got, list := audited(t, g, root, "?account=team"); !slices.Equal(got,
		[]string{"account.set team", "account.create team"}) || list[0].Details["limits.max_keys"] != "5" {
		t.Errorf("%q %+v", got, list)
	}
	g.doAs(root, "DELETE", "/accounts/team", "")
	if got, _ := audited(t, g, root, ""); !slices.Equal(got, []string{"account.remove team"}) {
		t.Errorf("%q", got)
	}
}

// Details are the changed fields, before and after. Fields that are sent unchanged are left out.
func TestAuditDetails(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	g.doAs(anna, "POST", "/keys", `{"name":"laptop","scope":"llama*","limits":{"tokens_per_day":500}}`)
	g.doAs(anna, "PATCH", "/keys/laptop",
		`{"name":"desk","scope":"llama*","note":"for Bob","expires_at":"2030-01-01T00:00:00Z",
		"allowed_ips":["10.0.0.0/8","192.0.2.1"],"limits":{"tokens_per_day":900,"requests_per_minute":5}}`)
	g.doAs(anna, "PATCH", "/keys/desk", `{"expires_at":null,"allowed_ips":[],"limits":{"tokens_per_day":0}}`)
	g.doAs(anna, "PATCH", "/keys/desk", `{"note":"`+strings.Repeat("x", 300)+`"}`)
	g.doAs(anna, "PATCH", "/keys/desk", `{"note":"null"}`)
	_, list := audited(t, g, anna, "?operation=key")
	want := []map[string]string{
		{"note": strings.Repeat("x", 120) + "… → null"},
		{"note": "for Bob → " + strings.Repeat("x", 120) + "…"},
		{
			"expires_at": "2030-01-01T00:00:00Z → none", "allowed_ips": "10.0.0.0/8, 192.0.2.1/32 → none",
			"limits.tokens_per_day": "900 → none",
		},
		{
			"name": "laptop → desk", "note": "for Bob", "expires_at": "2030-01-01T00:00:00Z",
			"allowed_ips":           "10.0.0.0/8, 192.0.2.1/32",
			"limits.tokens_per_day": "500 → 900", "limits.requests_per_minute": "5",
		},
		{"scope": "llama*", "owner": anna.User, "limits.tokens_per_day": "500"},
	}
	if len(list) != len(want) {
		t.Fatalf("%+v", list)
	}
	for i, o := range list {
		if !maps.Equal(o.Details, want[i]) {
			t.Errorf("%s: %q, want %q", o.Kind, o.Details, want[i])
		}
	}
}
