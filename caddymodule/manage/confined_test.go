package manage_test

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// Requests that name a record of another account in other ways than the path find nothing.
func TestOtherNamesOfRecords(t *testing.T) {
	w := newWorld(t)
	before := w.records()
	id := strings.NewReplacer("{key}", w.ids["{key}"], "{user}", w.ids["{user}"], "{code}", w.ids["{code}"],
		"{connector}", w.ids["{connector}"])
	for _, tt := range []struct{ method, path, body string }{
		{"PATCH", "/keys/mine-key", `{"note":"x"}`},
		{"DELETE", "/keys/{key}?record=remove", ""},
		{"POST", "/keys", `{"name":"x","owner":"{user}"}`},
		{"PUT", "/deployments/x", `{"connector":"{connector}"}`},
		{"POST", "/pairings/approve", `{"pairing":"{code}","replace":"{connector}"}`},
		{"POST", "/tokens", `{"name":"x","user":"{user}"}`},
	} {
		if a := w.doAs(w.other, tt.method, id.Replace(tt.path), id.Replace(tt.body)); a.Code != http.StatusNotFound &&
			a.Code != http.StatusForbidden {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, a.Code, a.Body)
		}
	}
	if after := w.records(); after != before {
		t.Errorf("the account's records have changed:\n%s\nwere\n%s", after, before)
	}
}

// Without a caller, or of one whose account was removed, all operations are refused: an entry point without
// authentication fails closed, and not even the default account is open.
func TestAccessOfNobody(t *testing.T) {
	w := newWorld(t)
	before := w.records()
	for route := range accesses {
		for caller, accounts := range map[manage.Caller][]string{
			{}: {"", "default"}, {Account: "gone", User: "usr_gone", Name: "gone", Session: "ses_gone"}: {""},
		} {
			for _, account := range accounts {
				status, body := w.request(caller, route, account)
				w.wantNothing(body)
				if status < 400 {
					t.Errorf("%s, %+v, account %q: %d %s", route, caller, account, status, body)
				}
			}
		}
	}
	if after := w.records(); after != before {
		t.Errorf("the account's records have changed:\n%s\nwere\n%s", after, before)
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
	data, err := os.ReadFile(manualPath)
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
			t.Errorf(manualPath+" describes %s, which is no route", route)
		}
		// For methods other than GET, curl needs an option.
		line := regexp.MustCompile(`(?m)^curl .*(/console/api|/model_gateway)` + path).FindString(section)
		method, _, _ := strings.Cut(route, " ")
		call := map[string]string{
			"PATCH": "curl -X PATCH --json ", "GET": "curl ", "POST": "curl --json ",
			"PUT": "curl -X PUT --json ", "DELETE": "curl -X DELETE ",
		}[method]
		if !strings.HasPrefix(line, call) || method == "GET" && strings.Contains(line, "json") {
			t.Errorf(manualPath+" does not show how %s is called by curl: %q", route, line)
		}
	}
	for _, route := range routes {
		if n := strings.Count("\n"+strings.Join(described, "\n")+"\n", "\n"+route+"\n"); n != 1 {
			t.Errorf(manualPath+" describes %s %d times", route, n)
		}
	}
}
