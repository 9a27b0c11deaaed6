package manage_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errOf returns the last result of a call, its error.
func errOf(results ...any) error {
	err, _ := results[len(results)-1].(error)
	return err
}

// operator is the caller at Caddy's admin endpoint.
var operator = manage.Caller{Name: "root", Operator: true}

// want performs a request of the operator, checks the status, and decodes the answer.
func want[T any](g *gateway, status int, method, path, body string) T {
	g.t.Helper()
	return wantAs[T](g, operator, status, method, path, body)
}

// wantAs is want for another caller.
func wantAs[T any](g *gateway, caller manage.Caller, status int, method, path, body string) T {
	g.t.Helper()
	w := g.doAs(caller, method, path, body)
	if w.Code != status {
		g.t.Fatalf("%s %s: status %d, want %d: %s", method, path, w.Code, status, w.Body)
	}
	if cc := w.Header().Get("Cache-Control"); cc != "no-store" {
		g.t.Errorf("%s %s: Cache-Control %q, want no-store", method, path, cc)
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/json" {
		g.t.Errorf("%s %s: Content-Type %q", method, path, ct)
	}
	var v T
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		g.t.Fatalf("%s %s: %v in %s", method, path, err, w.Body)
	}
	return v
}

// refused performs a request that must fail with a status, and with a part of the error.
func (g *gateway) refused(caller manage.Caller, status int, method, path, body, part string) {
	g.t.Helper()
	answer := wantAs[map[string]any](g, caller, status, method, path, body)
	if got := fmt.Sprint(answer["error"]); !strings.Contains(got, part) {
		g.t.Errorf("%s %s %s: the error %q lacks %q", method, path, body, got, part)
	}
}

// Empty lists are [], and no list shows a secret. A key that is created without a scope may use all models.
func TestKeys(t *testing.T) {
	g := newGateway(t)
	if body := g.do("GET", "/keys", "").Body.String(); body != "[]\n" {
		t.Errorf("empty list is %q, want []", body)
	}
	if body := g.do("GET", "/activity", "").Body.String(); !strings.HasPrefix(body, `{"requests":[]`) {
		t.Errorf("empty activity = %q", body)
	}
	created := want[map[string]any](g, 201, "POST", "/keys", `{"name":"laptop"}`)
	wantFields(t, created, "created_at", "id", "key", "name", "scope")
	if live, ok := g.store.FindKey(created["key"].(string)); !ok || live.Scope().String() != "*" {
		t.Fatalf("the printed key is not the stored one")
	}
	w := g.do("GET", "/keys", "")
	if strings.Contains(w.Body.String(), created["key"].(string)) || strings.Contains(w.Body.String(), "hash") {
		t.Errorf("the list shows a secret: %s", w.Body)
	}
}

func wantFields(t *testing.T, v map[string]any, names ...string) {
	t.Helper()
	for _, n := range names {
		if v[n] == nil || v[n] == "" {
			t.Errorf("field %q is missing in %v", n, v)
		}
	}
	if len(v) != len(names) {
		t.Errorf("%v has other fields than %v", v, names)
	}
}

func TestConnectors(t *testing.T) {
	g := newGateway(t)
	created := want[map[string]any](g, 201, "POST", "/connectors", `{"name":"home"}`)
	wantFields(t, created, "id", "name", "tunnel_token")
	token, err := link.ParseToken(created["tunnel_token"].(string))
	must(t, err)
	id := created["id"].(string)
	if token.Server != "gw.example.com:7443" || token.Pin != pin || token.Connector != id {
		t.Errorf("token leads to %q, pin %q, connector %q", token.Server, token.Pin, token.Connector)
	}
	if _, err := g.store.AuthenticateConnector(id, token.Secret); err != nil {
		t.Errorf("the token's secret does not authenticate: %v", err)
	}

	offline := want[[]map[string]any](g, 200, "GET", "/connectors", "")[0]
	wantFields(t, offline, "id", "account", "name", "created_at", "created_by", "state")
	if offline["state"] != "offline" {
		t.Errorf("state = %v, want offline", offline["state"])
	}

	g.tunnels.connect(tunnel.Info{
		Connector: id, Transport: "quic", Remote: "192.0.2.7:4711", Version: "v1.0.0", OS: "linux",
		Upstreams: []string{"ollama"}, Since: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC),
		RTT: 1500 * time.Microsecond, Active: 2,
	})
	online := want[[]map[string]any](g, 200, "GET", "/connectors", "")[0]
	for field, value := range map[string]any{
		"state": "online", "transport": "quic", "remote": "192.0.2.7:4711", "version": "v1.0.0",
		"since": "2026-05-01T12:00:00Z", "rtt_ms": 1.5, "active": 2.0,
		"newer_version": "v1.2.3", "update": nil,
	} {
		if online[field] != value {
			t.Errorf("%s = %v, want %v", field, online[field], value)
		}
	}

	removed := want[map[string]any](g, 200, "DELETE", "/connectors/home", "")
	if removed["id"] != id {
		t.Errorf("removed %v", removed)
	}
	if _, err := g.store.AuthenticateConnector(id, token.Secret); err == nil {
		t.Error("the token of a removed connector still authenticates")
	}
}

// through reports whether a deployment has these connectors: id, name and state of
// each.
func through(set map[string]any, connectors ...string) bool {
	var legs, ids []any
	for c := range slices.Chunk(connectors, 3) {
		ids = append(ids, c[0])
		legs = append(legs, c[0]+c[1]+c[2])
	}
	var got []any
	for _, leg := range set["through"].([]any) {
		leg := leg.(map[string]any)
		got = append(got, leg["id"].(string)+leg["name"].(string)+leg["state"].(string))
	}
	return reflect.DeepEqual(set["connectors"], ids) && reflect.DeepEqual(got, legs)
}

func TestDeployments(t *testing.T) {
	g := newGateway(t)
	home := want[map[string]any](g, 201, "POST", "/connectors", `{"name":"home"}`)["id"].(string)
	rack := want[map[string]any](g, 201, "POST", "/connectors", `{"name":"rack"}`)["id"].(string)

	set := want[map[string]any](g, 200, "PUT", "/deployments/qwen3:8b", `{"connector":"home","model":"q"}`)
	if !through(set, home, "home", "offline") || set["model"] != "q" || set["state"] != "offline" ||
		set["max_concurrency"] != nil {
		t.Errorf("set = %v", set)
	}
	// Registered again with another connector, by id: takes effect at once.
	set = want[map[string]any](g, 200, "PUT", "/deployments/qwen3:8b", `{"connector":"`+rack+`"}`)
	if !through(set, rack, "rack", "offline") || set["model"] != "q" {
		t.Errorf("set again = %v", set)
	}
	// Absent fields stay, and empty ones are reset.
	want[map[string]any](g, 200, "PUT", "/deployments/other", `{"connector":"home","also_as":["coder"]}`)
	want[map[string]any](g, 200, "PUT", "/deployments/qwen3:8b", `{"also_as":["claude-*"]}`)
	g.refused(operator, 409, "PUT", "/deployments/qwen3:8b", `{"also_as":["coder"]}`, "")
	want[map[string]any](g, 200, "PUT", "/deployments/qwen3:8b", `{"fallback":"other","options":{"safeguards":"other"}}`)
	want[map[string]any](g, 200, "DELETE", "/deployments/other", "")
	set = want[map[string]any](g, 200, "PUT", "/deployments/qwen3:8b", `{"also_as":[]}`)
	if text, _ := set["warning"].(string); !strings.Contains(text, `the fallback "other" does not exist`) {
		t.Errorf("without its fallback: %v", set)
	}
	set = want[map[string]any](g, 200, "PUT", "/deployments/qwen3:8b", `{"fallback":""}`)
	if text, _ := set["warning"].(string); !strings.Contains(text, `option "safeguards": "other" does not exist`) {
		t.Errorf("without its judge: %v", set)
	}
	want[map[string]any](g, 200, "PUT", "/deployments/qwen3:8b", `{"options":{"safeguards":"off"}}`)
	set = want[map[string]any](g, 200, "PUT", "/deployments/qwen3:8b", `{"upstream":"ollama"}`)
	if !through(set, rack, "rack", "offline") || set["model"] != "q" || set["upstream"] != "ollama" {
		t.Errorf("set the upstream = %v", set)
	}
	set = want[map[string]any](g, 200, "PUT", "/deployments/qwen3:8b", `{"upstream":"","model":""}`)
	if set["model"] != nil || set["upstream"] != nil {
		t.Errorf("reset = %v", set)
	}
	for body, problem := range map[string]string{
		`{"model":"q"}`:     `field \"connector\" or \"connectors\" is required for a new deployment`,
		`{"connectors":[]}`: "at least one connector",
	} {
		if w := g.do("PUT", "/deployments/another", body); w.Code != 400 || !strings.Contains(w.Body.String(), problem) {
			t.Errorf("%s: status %d, %s", body, w.Code, w.Body)
		}
	}
	if d, ok := g.store.Deployment("default", "qwen3:8b"); !ok || !slices.Equal(d.Connectors, []string{rack}) {
		t.Errorf("stored deployment = %+v", d)
	}

	g.tunnels.connect(tunnel.Info{Connector: rack, Upstreams: []string{"ollama", "vllm"}})
	// With several connectors it is online if any of them is.
	set = want[map[string]any](g, 200, "PUT", "/deployments/qwen3:8b",
		`{"connectors":["home","`+rack+`","rack"],"max_concurrency":4}`)
	if !through(set, home, "home", "offline", rack, "rack", "upstream_missing") || set["state"] != "upstream_missing" ||
		set["max_concurrency"] != 4.0 {
		t.Errorf("set with two connectors = %v", set)
	}
	// Options with their defaults are not stored.
	set = want[map[string]any](g, 200, "PUT", "/deployments/qwen3:8b",
		`{"connectors":["home","rack"],"options":{"think_tags":true,"file_parts":false,"remote_media":"allow",`+
			`"order":"spread"}}`)
	if !reflect.DeepEqual(set["options"], map[string]any{"think_tags": true, "remote_media": "allow"}) {
		t.Errorf("options = %v", set["options"])
	}
	set = want[map[string]any](g, 200, "PUT", "/deployments/qwen3:8b", `{"options":{"think_tags":false}}`)
	if !reflect.DeepEqual(set["options"], map[string]any{"remote_media": "allow"}) || set["max_concurrency"] != 4.0 {
		t.Errorf("set = %v", set)
	}
	set = want[map[string]any](g, 200, "PUT", "/deployments/qwen3:8b", `{"options":{"remote_media":"deny"}}`)
	if _, there := set["options"]; there {
		t.Errorf("options = %v, want none", set["options"])
	}
	for _, name := range []string{"home", "rack"} {
		g.refused(operator, 409, "DELETE", "/connectors/"+name, "", "in use by qwen3:8b")
	}
	set = want[map[string]any](g, 200, "PUT", "/deployments/org%2Fmodel%2E%2E", `{"connector":"rack","upstream":"olama"}`)
	if set["name"] != "org/model.." || set["state"] != "upstream_missing" {
		t.Errorf("set with an encoded name = %v", set)
	}
	if warning, _ := set["warning"].(string); !strings.Contains(warning,
		`uses upstream "olama", but connector "rack" has`) || !strings.Contains(warning, "ollama, vllm") {
		t.Errorf("warning = %q", warning)
	}

	list := want[[]map[string]any](g, 200, "GET", "/deployments", "")
	if len(list) != 2 || list[0]["name"] != "org/model.." || list[1]["name"] != "qwen3:8b" {
		t.Errorf("list = %v", list)
	}
	want[map[string]any](g, 200, "DELETE", "/deployments/org%2Fmodel%2E%2E", "")
	if _, ok := g.store.Deployment("default", "org/model.."); ok {
		t.Error("the deployment is still there")
	}
}

// A deployment's model that is not listed may be new: the warning comes only if the server still does not list it.
func TestSetDeploymentAsksForModels(t *testing.T) {
	g := newGateway(t)
	home := want[map[string]any](g, 201, "POST", "/connectors", `{"name":"home"}`)["id"].(string)
	lists := func(models ...string) {
		g.tunnels.connect(tunnel.Info{
			Connector: home, Upstreams: []string{"ollama"},
			States: []tunnel.UpstreamState{{Name: "ollama", Server: health.Reported(true, models, false)}},
		})
	}
	lists("a")
	var asked atomic.Int64
	g.tunnels.recheck = func() {
		if asked.Add(1) == 1 {
			go lists("a", "m")
		}
	}
	set := want[manage.Deployment](g, 200, "PUT", "/deployments/m", `{"connector":"home"}`)
	if set.Warning != "" || set.State != health.Available || asked.Load() == 0 {
		t.Errorf("asked %d times: %s, %q", asked.Load(), set.State, set.Warning)
	}
	set = want[manage.Deployment](g, 200, "PUT", "/deployments/n", `{"connector":"home"}`)
	if set.Warning == "" || set.State != health.ModelMissing {
		t.Errorf("a model that is missing: %s, %q", set.State, set.Warning)
	}
}

func TestStatus(t *testing.T) {
	g := newGateway(t)
	id := want[map[string]any](g, 201, "POST", "/connectors", `{"name":"home"}`)["id"].(string)
	want[map[string]any](g, 201, "POST", "/connectors", `{"name":"rack"}`)
	want[map[string]any](g, 200, "PUT", "/deployments/m", `{"connector":"home"}`)
	key := want[map[string]any](g, 201, "POST", "/keys", `{"name":"a"}`)["id"].(string)
	want[map[string]any](g, 201, "POST", "/keys", `{"name":"b"}`)
	want[map[string]any](g, 200, "DELETE", "/keys/"+key, "")
	g.tunnels.connect(tunnel.Info{Connector: id, Upstreams: []string{"ollama"}})

	got := want[manage.Status](g, 200, "GET", "/status", "")
	wanted := manage.Status{
		Build: manage.Build{Version: "v1.2.3", Commit: "abc123", Caddy: "v2.11.9"}, URL: "https://gw.example.com",
		Listener:    manage.Listener{Address: ":7443", Public: "gw.example.com:7443", Pin: pin},
		Connectors:  manage.ConnectorCount{Total: 2, Online: 1},
		Deployments: manage.DeploymentCount{Total: 1, Available: 1, States: map[health.State]int{health.Available: 1}},
		Keys:        manage.KeyCount{Active: 1, Revoked: 1},
		Counters:    tunnel.Counters{Connected: 7},
	}
	if !reflect.DeepEqual(got, wanted) {
		t.Errorf("status = %+v\nwant     %+v", got, wanted)
	}
}

// Every write is logged in one line with the operation, id and name, without secrets.
// Reads and failed writes are not logged.
func TestAudit(t *testing.T) {
	g := newGateway(t)
	connector := want[map[string]any](g, 201, "POST", "/connectors", `{"name":"home"}`)
	key := want[map[string]any](g, 201, "POST", "/keys", `{"name":"laptop"}`)
	want[map[string]any](g, 200, "PUT", "/deployments/m", `{"connector":"home"}`)
	g.do("POST", "/connectors", `{"name":"home"}`)
	g.do("GET", "/keys", "")
	want[map[string]any](g, 200, "DELETE", "/deployments/m", "")
	want[map[string]any](g, 200, "DELETE", "/connectors/home", "")
	want[map[string]any](g, 200, "DELETE", "/keys/"+key["id"].(string), "")

	text := g.log.String()
	token, err := link.ParseToken(connector["tunnel_token"].(string))
	must(t, err)
	for _, secret := range []string{key["key"].(string), connector["tunnel_token"].(string), token.Secret} {
		if strings.Contains(text, secret) {
			t.Errorf("the log has a secret:\n%s", text)
		}
	}
	var operations []string
	for line := range strings.Lines(text) {
		var entry struct{ Operation, ID, Name, Account, By string }
		must(t, json.Unmarshal([]byte(line), &entry))
		if entry.ID == "" || entry.Name == "" || entry.Account != "default" || entry.By != "root" {
			t.Errorf("incomplete line: %s", line)
		}
		operations = append(operations, entry.Operation)
	}
	wanted := "connector.create key.create deployment.set deployment.remove connector.remove key.revoke"
	if got := strings.Join(operations, " "); got != wanted {
		t.Errorf("operations = %s\nwant       %s", got, wanted)
	}
}

// In the log, a user with the name of an operator differs from an operator.
func TestAuditOfANamesake(t *testing.T) {
	g := newGateway(t)
	namesake := g.user("default", "root")
	for _, c := range []struct {
		caller manage.Caller
		id     string
	}{{namesake, namesake.User}, {manage.CallerFrom(asOperator(t.Context())), ""}} {
		before := len(g.log.String())
		must(t, errOf(g.service.CreateKey(manage.WithCaller(t.Context(), c.caller),
			named(rand.Text()))))
		var entry map[string]any
		must(t, json.Unmarshal([]byte(g.log.String()[before:]), &entry))
		if entry["by"] != "root" || entry["by_id"] != c.id {
			t.Errorf("by %v, id %v, want root, %q", entry["by"], entry["by_id"], c.id)
		}
	}
}

// Without a public address, the gateway creates neither a token, which would be
// unusable, nor a connector.
func TestCreateConnectorWithoutPublicAddress(t *testing.T) {
	g := newGateway(t)
	g.endpoint.Public = ""
	_, err := g.service.CreateConnector(asOperator(t.Context()), manage.CreateConnector{Name: "home"})
	if err == nil || !strings.Contains(err.Error(), "`public gw.example.com:7443`") {
		t.Errorf("error = %v", err)
	}
	g.refused(operator, 409, "POST", "/connectors", `{"name":"home"}`, "")
	if n := len(g.store.Connectors("default")); n != 0 {
		t.Errorf("%d connectors were made", n)
	}
}
