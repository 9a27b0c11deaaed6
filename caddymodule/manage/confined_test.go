package manage_test

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Operations confine their caller to records of its account.
func TestOperationsAreConfined(t *testing.T) {
	w := newWorld(t)
	before := w.records()
	id := func(name string) string { return w.ids["{"+name+"}"] }
	s, ctx := w.service, manage.WithCaller(t.Context(), w.other)
	for name, err := range map[string]error{
		"DeleteKey":  errOf(s.DeleteKey(ctx, manage.DeleteKey{Key: id("key")})),
		"Key":        errOf(s.Key(ctx, id("key"))),
		"EditKey":    errOf(s.EditKey(ctx, id("key"), named("x"))),
		"… by name":  errOf(s.EditKey(ctx, "mine-key", named("x"))),
		"RotateKey":  errOf(s.RotateKey(ctx, manage.RotateKey{Key: id("key")})),
		"DisableKey": errOf(s.DisableKey(ctx, id("key"))),
		"EnableKey":  errOf(s.EnableKey(ctx, id("key"))),
		"… for its user": errOf(s.CreateKey(ctx, func(k *store.KeyFields) error {
			k.Name, k.Owner = "x", id("user")
			return nil
		})),
		"RevokeKey":       errOf(s.RevokeKey(ctx, id("key"))),
		"RemoveKey":       s.RemoveKey(ctx, id("key")),
		"RemoveConnector": errOf(s.RemoveConnector(ctx, id("spare"))),
		"RotateConnector": errOf(s.RotateConnector(ctx, manage.RotateConnector{Connector: id("spare")})),
		"SetDeployment": errOf(s.SetDeployment(ctx,
			"x", func(d *manage.DeploymentFields) error { d.Connector = id("connector"); return nil })),
		"RemoveDeployment": errOf(s.RemoveDeployment(ctx, "mine-deployment")),
		"TestDeployment":   errOf(s.TestDeployment(ctx, "mine-deployment")),
		"UpstreamModels":   errOf(s.UpstreamModels(ctx, id("connector"))),
		"ApprovePairing":   errOf(s.ApprovePairing(ctx, manage.ApprovePairing{Pairing: id("code")})),
		"… to replace": errOf(s.ApprovePairing(ctx,
			manage.ApprovePairing{Pairing: id("code"), Replace: id("connector")})),
		"DenyPairing":      errOf(s.DenyPairing(ctx, manage.DenyPairing{Pairing: id("pairing")})),
		"RemoveUser":       errOf(s.RemoveUser(ctx, id("second"))),
		"RecoveryLink":     errOf(s.RecoveryLink(ctx, id("user"))),
		"RevokeInvitation": errOf(s.RevokeInvitation(ctx, id("invitation"))),
		"CreateToken":      errOf(s.CreateToken(ctx, manage.CreateToken{Name: "x", User: id("user")})),
		"RevokeToken":      errOf(s.RevokeToken(ctx, id("token"))),
		"RevokeSession":    errOf(s.RevokeSession(ctx, id("session"))),
	} {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"SetupLink":     errOf(s.SetupLink(ctx)),
		"Accounts":      errOf(s.Accounts(ctx)),
		"CreateAccount": errOf(s.CreateAccount(ctx, manage.CreateAccount{ID: "x"})),
		"SetAccount":    errOf(s.SetAccount(ctx, "default", func(*manage.AccountFields) error { return nil })),
		"RemoveAccount": errOf(s.RemoveAccount(ctx, "empty")),
	} {
		if !errors.Is(err, manage.ErrForbidden) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := w.records(); after != before {
		t.Errorf("the account's records have changed:\n%s\nwere\n%s", after, before)
	}
}

// Without a caller all operations are refused: an entry point without authentication
// fails closed.
func TestAccessOfNobody(t *testing.T) {
	w := newWorld(t)
	before := w.records()
	for route := range accesses {
		for _, account := range []string{"", "default"} {
			status, body := w.request(manage.Caller{}, route, account)
			w.wantNothing(body)
			if status < 400 {
				t.Errorf("%s, account %q: %d %s", route, account, status, body)
			}
		}
	}
	if after := w.records(); after != before {
		t.Errorf("the account's records have changed:\n%s\nwere\n%s", after, before)
	}
}

// A caller whose account was removed has no access, not even to the default account.
func TestAccessOfRemovedAccount(t *testing.T) {
	w := newWorld(t)
	gone := manage.Caller{Account: "gone", User: "usr_gone", Name: "gone", Session: "ses_gone"}
	for route := range accesses {
		status, body := w.request(gone, route, "")
		w.wantNothing(body)
		if status < 400 {
			t.Errorf("%s: %d %s", route, status, body)
		}
	}
}

// Status counts the caller's account; totals of the gateway are for operators.
func TestStatusOfAccount(t *testing.T) {
	w := newWorld(t)
	st, err := w.service.Status(manage.WithCaller(t.Context(), w.other))
	if err != nil || st.Connectors != (manage.ConnectorCount{Total: 1, Online: 1}) || st.Deployments.Total != 0 ||
		st.Keys.Active != 0 || st.Counters.Connected != 0 {
		t.Errorf("status = %+v", st)
	}
	if st.Listener.Pin != pin {
		t.Errorf("pin = %q: users need it to pair", st.Listener.Pin)
	}
	if st, err := w.service.Status(asOperator(t.Context())); err != nil || st.Connectors.Total != 3 ||
		st.Counters.Connected != 7 {
		t.Errorf("operator's status = %+v", st)
	}
}

// The manual has every route, with a sample call.
func TestManualHasAllRoutes(t *testing.T) {
	data, err := os.ReadFile("../../docs/api.md")
	must(t, err)
	routes := manage.Routes()
	var described []string
	for section := range strings.SplitSeq(string(data), "\n### ") {
		heading := regexp.MustCompile("^`([A-Z]+ (/[^`{]*)[^`]*)`\n").FindStringSubmatch(section)
		if heading == nil {
			continue
		}
		route, path := heading[1], heading[2]
		described = append(described, route)
		if !slices.Contains(routes, route) {
			t.Errorf("docs/api.md describes %s, which is no route", route)
		}
		// For methods other than GET, curl needs an option.
		line := regexp.MustCompile(`(?m)^curl .*(/console/api|/model_gateway)` + path).FindString(section)
		method, _, _ := strings.Cut(route, " ")
		call := map[string]string{
			"PATCH": "curl -X PATCH --json ", "GET": "curl ", "POST": "curl --json ",
			"PUT": "curl -X PUT --json ", "DELETE": "curl -X DELETE ",
		}[method]
		if !strings.HasPrefix(line, call) || method == "GET" && strings.Contains(line, "json") {
			t.Errorf("docs/api.md does not show how %s is called by curl: %q", route, line)
		}
	}
	for _, route := range routes {
		if n := strings.Count("\n"+strings.Join(described, "\n")+"\n", "\n"+route+"\n"); n != 1 {
			t.Errorf("docs/api.md describes %s %d times", route, n)
		}
	}
}
