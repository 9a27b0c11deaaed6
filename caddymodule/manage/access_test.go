package manage_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// access is a request that succeeds for permitted callers.
type access struct {
	path string            // relative to the route's collection; {…} are records of the world
	body map[string]string // nil: none
}

// accesses has a case for every route: a new route needs one here.
var accesses = map[string]access{
	"GET /status":                  {path: "/status"},
	"GET /checklist":               {path: "/checklist"},
	"GET /identity":                {path: "/identity"},
	"POST /identity/rotate":        {path: "/identity/rotate", body: map[string]string{}},
	"GET /backup":                  {path: "/backup"},
	"GET /keys":                    {path: "/keys"},
	"POST /keys":                   {path: "/keys", body: map[string]string{"name": "new"}},
	"POST /setups":                 {path: "/setups", body: map[string]string{"client": "claude"}},
	"GET /groups":                  {path: "/groups"},
	"POST /groups":                 {path: "/groups", body: map[string]string{"name": "new"}},
	"GET /groups/{id}":             {path: "/groups/{group}"},
	"PATCH /groups/{id}":           {path: "/groups/{group}", body: map[string]string{"name": "new"}},
	"DELETE /groups/{id}":          {path: "/groups/{group}"},
	"GET /keys/{id}":               {path: "/keys/{key}"},
	"GET /keys/{id}/limits":        {path: "/keys/{key}/limits"},
	"GET /keys/{id}/people":        {path: "/keys/{key}/people"},
	"POST /keys/{id}/forget":       {path: "/keys/{key}/forget", body: map[string]string{"person": "anna"}},
	"PATCH /keys/{id}":             {path: "/keys/{key}", body: map[string]string{"note": "new"}},
	"POST /keys/{id}/rotate":       {path: "/keys/{key}/rotate", body: map[string]string{}},
	"POST /keys/{id}/disable":      {path: "/keys/{key}/disable", body: map[string]string{}},
	"POST /keys/{id}/enable":       {path: "/keys/{key}/enable", body: map[string]string{}},
	"DELETE /keys/{id}":            {path: "/keys/{key}"},
	"GET /connectors":              {path: "/connectors"},
	"POST /connectors":             {path: "/connectors", body: map[string]string{"name": "new"}},
	"GET /connectors/{id}":         {path: "/connectors/{connector}"},
	"PATCH /connectors/{id}":       {path: "/connectors/{spare}", body: map[string]string{"name": "renamed"}},
	"DELETE /connectors/{id}":      {path: "/connectors/{spare}"},
	"GET /connectors/{id}/models":  {path: "/connectors/{connector}/models"},
	"POST /connectors/{id}/rotate": {path: "/connectors/{spare}/rotate", body: map[string]string{}},
	"GET /pairings":                {path: "/pairings"},
	"POST /pairings":               {path: "/pairings", body: map[string]string{}},
	"POST /pairings/approve":       {path: "/pairings/approve", body: map[string]string{"pairing": "{code}"}},
	"POST /pairings/deny":          {path: "/pairings/deny", body: map[string]string{"pairing": "{pairing}"}},
	"GET /offers":                  {path: "/offers"},
	"GET /deployments":             {path: "/deployments"},
	"PUT /deployments/{name}": {
		path: "/deployments/mine-deployment",
		body: map[string]string{"connector": "mine-connector"},
	},
	"DELETE /deployments/{name}":       {path: "/deployments/mine-deployment"},
	"POST /deployments/{name}/test":    {path: "/deployments/mine-deployment/test", body: map[string]string{}},
	"POST /deployments/{name}/measure": {path: "/deployments/mine-deployment/measure", body: map[string]string{}},
	"GET /activity":                    {path: "/activity"},
	"GET /activity/{id}":               {path: "/activity/{request}"},
	"GET /usage":                       {path: "/usage"},
	"GET /audit":                       {path: "/audit"},
	"GET /users":                       {path: "/users"},
	"POST /users": {
		path: "/users",
		body: map[string]string{"name": "new", "password": "long enough for this"},
	},
	"PATCH /users/{id}":  {path: "/users/{second}", body: map[string]string{"role": "viewer"}},
	"DELETE /users/{id}": {path: "/users/{second}"},
	"POST /users/{id}/link": {
		path: "/users/{second}/link", body: map[string]string{"issuer": issuer, "subject": "1"},
	},
	"POST /users/{id}/unlink": {
		path: "/users/{second}/unlink", body: map[string]string{"issuer": issuer, "subject": "0"},
	},
	"POST /users/{id}/recovery-link": {path: "/users/{second}/recovery-link", body: map[string]string{}},
	"GET /invitations":               {path: "/invitations"},
	"POST /invitations":              {path: "/invitations", body: map[string]string{}},
	"DELETE /invitations/{id}":       {path: "/invitations/{invitation}"},
	"POST /setup-link":               {path: "/setup-link", body: map[string]string{}},
	"GET /tokens":                    {path: "/tokens"},
	"POST /tokens":                   {path: "/tokens", body: map[string]string{"name": "new", "user": "mine-user"}},
	"DELETE /tokens/{id}":            {path: "/tokens/{token}"},
	"GET /sessions":                  {path: "/sessions"},
	"DELETE /sessions":               {path: "/sessions"},
	"DELETE /sessions/{id}":          {path: "/sessions/{session}"},
	"POST /sessions/confirm":         {path: "/sessions/confirm", body: map[string]string{"password": password}},
	"GET /edges":                     {path: "/edges"},
	"DELETE /edges/{name}":           {path: "/edges/edge-b?stopped=true"},
	"POST /edges/{name}/drain":       {path: "/edges/edge-b/drain", body: map[string]string{}},
	"POST /edges/{name}/undrain":     {path: "/edges/edge-b/undrain", body: map[string]string{}},
	"POST /webhooks/test":            {path: "/webhooks/test", body: map[string]string{}},
	"GET /accounts":                  {path: "/accounts"},
	"POST /accounts":                 {path: "/accounts", body: map[string]string{"id": "third"}},
	"PATCH /accounts/{id}":           {path: "/accounts/default", body: map[string]string{}},
	"DELETE /accounts/{id}":          {path: "/accounts/empty"},
}

// issuer is an issuer of the configuration.
const issuer = "https://id.example.com"

// named returns the request for a key with a name.
func named(name string) func(*store.KeyFields) error {
	return func(k *store.KeyFields) error {
		k.Name = name
		return nil
	}
}

// world is a gateway with two accounts. The first has a record of each kind, with
// "mine" in its name or id.
type world struct {
	*gateway
	mine, other manage.Caller
	ids         map[string]string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c := &fakeCluster{}
	g := newGatewayIn(t, c)
	c.start(g)
	for _, id := range []string{"other", "empty"} {
		must(t, errOf(g.store.CreateAccount(t.Context(), id)))
	}
	w := &world{gateway: g, mine: g.user("default", "mine-user"), other: g.user("other", "olga"), ids: map[string]string{}}
	second := g.user("default", "mine-second")
	g.store.SetSignInPolicy(store.SignInPolicy{Issuers: []string{issuer}})
	must(t, errOf(g.store.LinkIdentity(t.Context(), "default", second.User, issuer, "0")))
	g.connector("other", "others", map[string]http.Handler{"ollama": models("others-model")})
	home := g.connector("default", "mine-connector", map[string]http.Handler{"ollama": models("mine-model")})
	g.deployment("mine-deployment", home, "", "")
	ctx := manage.WithCaller(t.Context(), w.mine)
	key, err := g.service.CreateKey(ctx, named("mine-key"))
	must(t, err)
	group, err := g.service.CreateGroup(ctx, func(f *store.GroupFields) error {
		f.Name, f.Members = "mine-group", []string{"mine-user"}
		return nil
	})
	must(t, err)
	spare, err := g.service.CreateConnector(ctx, manage.CreateConnector{Name: "mine-spare"})
	must(t, err)
	pairing, err := g.service.StartPairing(ctx)
	must(t, err)
	g.device(pairing.Code, "mine-device")
	invitation, err := g.service.Invite(ctx, manage.Invite{})
	must(t, err)
	token, err := g.service.CreateToken(ctx, manage.CreateToken{Name: "mine-token"})
	must(t, err)
	g.activity.Record("default", activity.Request{
		ID: "req_mine", Time: time.Now(), Deployment: "mine-deployment",
		Status: 200,
	})
	for name, id := range map[string]string{
		"group": group.ID,
		"key":   key.ID, "spare": spare.ID, "connector": home.info.Connector, "code": pairing.Code, "pairing": pairing.ID,
		"invitation": invitation.ID, "token": token.ID, "user": w.mine.User, "second": second.User, "session": w.mine.Session,
		"request": "req_mine",
	} {
		w.ids["{"+name+"}"] = id
	}
	return w
}

// request performs the request of a case, without an account if account is "".
func (w *world) request(caller manage.Caller, route string, account string) (status int, body string) {
	a := accesses[route]
	method, _, _ := strings.Cut(route, " ")
	filled := func(s string) string {
		for name, id := range w.ids {
			s = strings.ReplaceAll(s, name, id)
		}
		return s
	}
	path := filled(a.path)
	text := ""
	if a.body != nil {
		var members []string
		for name, value := range a.body {
			members = append(members, fmt.Sprintf("%q:%q", name, filled(value)))
		}
		if account != "" {
			members = append(members, fmt.Sprintf(`"account":%q`, account))
		}
		text = "{" + strings.Join(members, ",") + "}"
	} else if account != "" {
		path += "?account=" + account
	}
	answer := w.doAs(caller, method, path, text)
	return answer.Code, answer.Body.String()
}

// records returns all records of the first account, as its user sees them.
func (w *world) records() string {
	w.t.Helper()
	var all strings.Builder
	for _, list := range []string{
		"keys", "groups", "connectors", "deployments", "pairings", "users", "invitations", "tokens",
		"sessions", "activity", "usage",
	} {
		answer := w.doAs(w.mine, "GET", "/"+list, "")
		if answer.Code != 200 {
			w.t.Fatalf("GET /%s: %d %s", list, answer.Code, answer.Body)
		}
		all.WriteString(answer.Body.String())
	}
	return all.String()
}

// wantNothing checks that an answer contains nothing of the first account.
func (w *world) wantNothing(body string) {
	w.t.Helper()
	for name, id := range w.ids {
		// An error may repeat the requested id.
		if strings.Contains(body, id) && !strings.HasPrefix(body, `{"error":`) {
			w.t.Errorf("the answer contains %s %s: %s", name, id, body)
		}
	}
	if strings.Contains(body, "mine-") && !strings.HasPrefix(body, `{"error":`) ||
		strings.Contains(body, "mine-device") || strings.Contains(body, "req_mine") {
		w.t.Errorf("the answer contains another account: %s", body)
	}
}

func TestAccessesAreComplete(t *testing.T) {
	routes := manage.Routes()
	for _, route := range routes {
		if _, ok := accesses[route]; !ok {
			t.Errorf("%s has no case in accesses: who may do it?", route)
		}
	}
	for route := range accesses {
		if !slices.Contains(routes, route) {
			t.Errorf("accesses has a case for %s, which is no route", route)
		}
	}
}

// The requests of accesses succeed for permitted callers, so that the refusals in
// other tests are not due to mistakes in the requests.
func TestAccessAllowed(t *testing.T) {
	unchanged := newWorld(t)
	fresh := func(t *testing.T, route string) *world {
		if strings.HasPrefix(route, "GET ") {
			return unchanged
		}
		return newWorld(t)
	}
	for route := range accesses {
		t.Run(route, func(t *testing.T) {
			w, o := fresh(t, route), manage.FindOperation(route)
			status, body := w.request(w.mine, route, "")
			if operators := o.Roles == 0; operators != (status == http.StatusForbidden) || !operators && status >= 300 {
				t.Errorf("the account's user: %d %s", status, body)
			}
			if status < 300 {
				checkBody(t, route, "responses/"+strconv.Itoa(status), []byte(body))
			}
			w = fresh(t, route)
			account := "default"
			if o.About != manage.InAccount {
				account = ""
			}
			if route == "POST /setup-link" { // only while there are no users
				for _, id := range []string{w.mine.User, w.ids["{second}"]} {
					must(t, errOf(w.store.RemoveUser(t.Context(), "default", id)))
				}
				must(t, errOf(w.store.RemoveUser(t.Context(), "other", w.other.User)))
			}
			status, body = w.request(operator, route, account)
			if users := o.About == manage.OfUser; users != (status == http.StatusForbidden) || !users && status >= 300 {
				t.Errorf("an operator: %d %s", status, body)
			}
			switch {
			case route == "GET /backup": // a file
			case status < 300:
				checkBody(t, route, "responses/"+strconv.Itoa(status), []byte(body))
			default:
				checkBody(t, route, "responses/default", []byte(body))
			}
		})
	}
}

// No route reads or changes records of another account.
func TestAccessOfAnotherAccount(t *testing.T) {
	w := newWorld(t)
	token := asToken(w.other, store.AllRights)
	before := w.records()
	for route, a := range accesses {
		t.Run(route, func(t *testing.T) {
			o := manage.FindOperation(route)
			for name, caller := range map[string]manage.Caller{"session": w.other, "token": token} {
				status, body := w.request(caller, route, "")
				w.wantNothing(body)
				if strings.Contains(a.path, "{") && status != http.StatusNotFound && status != http.StatusForbidden {
					t.Errorf("%s, record of another account: %d %s", name, status, body)
				}
				if o.Roles == 0 && status != http.StatusForbidden {
					t.Errorf("%s, for operators only: %d %s", name, status, body)
				}
				status, body = w.request(caller, route, "default")
				w.wantNothing(body)
				if name == "token" && strings.Contains(body, "a management token cannot do this") {
					continue // in no account
				}
				if o.About != manage.InAccount || o.Roles == 0 {
					if status != http.StatusBadRequest && status != http.StatusForbidden && status != http.StatusNotFound {
						t.Errorf("%s, naming the account where there is none: %d %s", name, status, body)
					}
				} else if status != http.StatusNotFound || !strings.Contains(body, `account \"default\" not found`) {
					t.Errorf("%s, naming another account: %d %s", name, status, body)
				}
			}
		})
	}
	if after := w.records(); after != before {
		t.Errorf("the account's records have changed:\n%s\nwere\n%s", after, before)
	}
}
