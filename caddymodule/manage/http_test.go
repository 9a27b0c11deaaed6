package manage_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
)

const key, connector, deployment = "/keys", "/connectors", "/deployments/m"

// errorTests are wrong requests and their errors.
var errorTests = []struct {
	name, method, path, body string
	status                   int
	text                     string // part of the error
}{
	{"unknown path", "GET", "/nothing", "", 404, "unknown path /nothing"},
	{"root", "GET", "/", "", 404, "unknown path /"},
	{"wrong method", "PATCH", key, "", 405, "use GET, POST"},
	{"wrong method of an item", "PUT", "/keys/x", "", 405, "use DELETE, GET, PATCH"},
	{"wrong method of status", "POST", "/status", "{}", 405, "use GET"},
	{"unknown parameter", "GET", "/keys?acount=x", "", 400, `unknown query parameter "acount"`},
	{"doubled parameter", "GET", "/keys?account=a&account=b", "", 400, `"account" is given twice`},
	{"list in an unknown account", "GET", "/keys?account=none", "", 404, `account "none" not found`},
	{"connectors in an unknown account", "GET", "/connectors?account=none", "", 404, `account "none" not found`},
	{"deployments in an unknown account", "GET", "/deployments?account=none", "", 404, `account "none" not found`},

	{
		"not JSON", "POST", key, "name=x", 400,
		"must be a JSON object with the fields name, scope, expires_at, owner, note, default_model, allowed_ips, limits, " +
			"priority, user_header, user_field, person_limits, group, account",
	},
	{"array", "POST", key, `[]`, 400, "must be a JSON object"},
	{"cut off", "POST", key, `{"name":"x"`, 400, "unexpected end"},
	{"cut off value", "POST", key, `{"name":"x`, 400, "unexpected end"},
	{"bad syntax", "POST", key, `{"name":"x",}`, 400, "not valid JSON near byte"},
	{"bad escape", "POST", key, `{"name":"\x"}`, 400, "not valid JSON near byte"},
	{"two values", "POST", key, `{"name":"x"}{}`, 400, "data after its JSON object"},
	{
		"unknown field", "POST", key, `{"name":"x","scopes":"*"}`, 400,
		`unknown field "scopes"; the fields are name, scope, expires_at, owner, note, default_model, allowed_ips, ` +
			"limits, priority, user_header, user_field, person_limits, group, account",
	},
	{"other letter case", "POST", key, `{"Name":"x"}`, 400, `unknown field "Name"`},
	{"doubled field", "POST", key, `{"name":"x","name":"y"}`, 400, `"name" is given twice`},
	{"doubled field in a value", "POST", key, `{"name":"x","expires_at":{"a":1,"a":2}}`, 400, `duplicate object member`},
	{"two wrong options", "PUT", deployment, `{"options":{"z":1,"b":1,"y":1,"x":1}}`, 400, `unknown option "b"`},
	{"number", "POST", key, `{"name":7}`, 400, `"name" must be a string`},
	{"null", "POST", key, `{"name":null}`, 400, `"name" must be a string`},
	{"object", "POST", key, `{"name":{}}`, 400, `"name" must be a string`},
	{"array field", "POST", key, `{"name":"x","scope":["*"]}`, 400, `"scope" must be a string`},
	{"boolean", "POST", key, `{"name":true}`, 400, `"name" must be a string`},
	{"too large", "POST", key, `{"name":"` + strings.Repeat("x", 65<<10) + `"}`, 413, "larger than 65536 bytes"},

	{"key without a name", "POST", key, `{}`, 400, `"name" is required`},
	{"key with an empty scope", "POST", key, `{"name":"x","scope":""}`, 400, `"scope" is empty`},
	{"key with an empty scope part", "POST", key, `{"name":"x","scope":"a,,b"}`, 400, ""},
	{"key in an unknown account", "POST", key, `{"name":"x","account":"none"}`, 404, `account "none" not found`},
	{"revoke an unknown key", "DELETE", "/keys/key_none", "", 404, "key_none"},
	{"revoke in an unknown account", "DELETE", "/keys/key_none?account=none", "", 404, `account "none" not found`},
	{"revoke with an unknown parameter", "DELETE", "/keys/key_none?force=1", "", 400, `"force"`},

	{"connector without a name", "POST", connector, `{"name":""}`, 400, `"name" is required`},
	{"connector name taken", "POST", connector, `{"name":"home"}`, 409, "home"},
	{
		"connector in an unknown account", "POST", connector, `{"name":"x","account":"none"}`, 404,
		`account "none" not found`,
	},
	{"remove an unknown connector", "DELETE", "/connectors/none", "", 404, "none"},
	{"remove a connector in use", "DELETE", "/connectors/home", "", 409, "used"},
	{
		"remove a connector in an unknown account", "DELETE", "/connectors/home?account=none", "", 404,
		`account "none" not found`,
	},
	{"rotate an unknown connector", "POST", "/connectors/none/rotate", "{}", 404, "none"},
	{
		"rotate in an unknown account", "POST", "/connectors/home/rotate", `{"account":"none"}`, 404,
		`account "none" not found`,
	},
	{"rotate with a negative grace", "POST", "/connectors/home/rotate", `{"grace":"-1s"}`, 400, `"-1s" is not a duration`},
	{"rotate with a long grace", "POST", "/connectors/home/rotate", `{"grace":"721h"}`, 400, "0s to 720h"},
	{"rotate with a number as grace", "POST", "/connectors/home/rotate", `{"grace":5}`, 400, "grace"},

	{"deployment without a connector", "PUT", deployment, `{}`, 400, `"connector" or "connectors" is required`},
	{
		"deployment with both forms of connectors", "PUT", deployment, `{"connector":"home","connectors":["home"]}`, 400,
		`cannot be used together`,
	},
	{
		"deployment with connectors of another type", "PUT", deployment, `{"connectors":"home"}`, 400,
		`"connectors" must be an array of strings`,
	},
	{"deployment without connectors", "PUT", deployment, `{"connectors":[]}`, 400, `at least one connector`},
	{
		"deployment with a bound of another type", "PUT", deployment, `{"connector":"home","max_concurrency":"4"}`, 400,
		`"max_concurrency" must be a whole number`,
	},
	{
		"deployment with a bound below 0", "PUT", deployment, `{"connector":"home","max_concurrency":-4}`, 400,
		`must be between 1 and`,
	},
	{
		"deployment with options of another type", "PUT", deployment, `{"connector":"home","options":["reasoning"]}`, 400,
		`"options" must be an object with the options reasoning, file_parts`,
	},
	{
		"deployment with options that are null", "PUT", deployment, `{"connector":"home","options":null}`, 400,
		`"options" must be an object`,
	},
	{
		"deployment with an unknown option", "PUT", deployment, `{"connector":"home","options":{"Reasoning":true}}`, 400,
		`unknown option "Reasoning"; the options are reasoning, file_parts`,
	},
	{
		"deployment with an option twice", "PUT", deployment,
		`{"connector":"home","options":{"reasoning":true,"reasoning":false}}`, 400, `option "reasoning" is given twice`,
	},
	{
		"deployment with a flag that is a string", "PUT", deployment, `{"connector":"home","options":{"reasoning":"true"}}`,
		400, `option "reasoning" must be false or true`,
	},
	{
		"deployment with a choice that is a flag", "PUT", deployment,
		`{"connector":"home","options":{"affinity":true}}`, 400,
		`option "affinity" must be conversation, key or off`,
	},
	{
		"deployment with a choice that there is not", "PUT", deployment,
		`{"connector":"home","options":{"remote_media":"https"}}`, 400, `option "remote_media" must be deny or allow`,
	},
	{
		"deployment with options that break off", "PUT", deployment, `{"connector":"home","options":{"reasoning":tr`, 400,
		`not valid JSON`,
	},
	{"deployment on an unknown connector", "PUT", deployment, `{"connector":"none"}`, 404, "caddy gateway connector list"},
	{"deployment with a bad name", "PUT", "/deployments/a%20b", `{"connector":"home"}`, 400, "a b"},
	{
		"deployment with an unknown field", "PUT", deployment, `{"connector":"home","models":"x"}`, 400,
		"connector, connectors, add_connector, upstream, model, kind, also_as, fallback, max_concurrency, options, account",
	},
	{
		"deployment in an unknown account", "PUT", deployment, `{"connector":"home","account":"none"}`, 404,
		`account "none" not found`,
	},
	{"remove an unknown deployment", "DELETE", "/deployments/none", "", 404, "none"},
	{
		"remove a deployment in an unknown account", "DELETE", "/deployments/used?account=none", "", 404,
		`account "none" not found`,
	},
}

// Each wrong request gets its error, and changes nothing.
func TestErrors(t *testing.T) {
	for _, tt := range errorTests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGateway(t)
			g.do("POST", "/connectors", `{"name":"home"}`)
			g.do("PUT", "/deployments/used", `{"connector":"home"}`)
			state := func() string {
				s, a := g.store, store.DefaultAccount
				return fmt.Sprint(s.Accounts(), s.Keys(a), s.Connectors(a), s.Deployments(a))
			}
			before := state()
			w := g.do(tt.method, tt.path, tt.body)
			if w.Code != tt.status {
				t.Errorf("status = %d, want %d", w.Code, tt.status)
			}
			if after := state(); after != before {
				t.Errorf("the store changed: %s, was %s", after, before)
			}
			wantError(t, w, tt.text)
		})
	}
}

// wantError checks the shape of an error: {"error": text} and nothing else.
func wantError(t *testing.T, w *httptest.ResponseRecorder, part string) {
	t.Helper()
	var answer map[string]string
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	text, ok := answer["error"]
	if !ok || len(answer) != 1 || text == "" || !strings.Contains(text, part) {
		t.Errorf("answer = %v, want an error with %q", answer, part)
	}
	if strings.HasPrefix(text, "not found") || strings.HasPrefix(text, "invalid:") {
		t.Errorf("error %q begins with the name of its kind", text)
	}
}

func TestContentTypeRequired(t *testing.T) {
	g := newGateway(t)
	for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded", ";"} {
		r := httptest.NewRequest("POST", prefix+"/keys", strings.NewReader(`{"name":"x"}`))
		r = r.WithContext(asOperator(r.Context()))
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		g.handler.ServeHTTP(w, r)
		if w.Code != 415 {
			t.Errorf("Content-Type %q: status %d, want 415", contentType, w.Code)
		}
		wantError(t, w, "application/json")
	}
}

// The cause of an internal error is in the log, and not in the answer.
func TestInternalError(t *testing.T) {
	g := newGateway(t)
	must(t, g.store.Close())
	w := g.do("POST", "/keys", `{"name":"x"}`)
	if w.Code != 500 {
		t.Errorf("status = %d, want 500", w.Code)
	}
	wantError(t, w, "its log has the reason")
	if !strings.Contains(g.log.String(), "management operation failed") {
		t.Errorf("log = %q", g.log)
	}
}

func TestAllowHeader(t *testing.T) {
	g := newGateway(t)
	if allow := g.do("PUT", "/connectors", "{}").Header().Get("Allow"); allow != "GET, POST" {
		t.Errorf("Allow = %q", allow)
	}
}

// A byte order mark in front of a body is skipped.
func TestByteOrderMark(t *testing.T) {
	g := newGateway(t)
	if w := g.do("POST", "/connectors", "\ufeff"+`{"name":"home"}`); w.Code != 201 {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}
