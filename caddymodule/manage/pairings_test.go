package manage_test

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

func TestPairings(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	started := wantAs[manage.Pairing](g, anna, 201, "POST", "/pairings", "{}")
	if !strings.HasPrefix(started.Code, "PAIR-") || started.State != store.PairingWaiting || started.CreatedBy != "anna" {
		t.Errorf("started = %+v", started)
	}
	wantAs[map[string]any](g, anna, 409, "POST", "/pairings/approve", pairingBody(started.Code, "")) // no device waits
	g.device(started.Code, "workstation")
	list := wantAs[[]manage.Pairing](g, anna, 200, "GET", "/pairings", "")
	if len(list) != 1 || list[0].Code != started.Code || list[0].Device.Hostname != "workstation" ||
		list[0].State != store.PairingPending || list[0].Connected {
		t.Errorf("list = %+v", list)
	}
	code := strings.ToLower(strings.TrimPrefix(started.Code, "PAIR-")) // as people type it
	approved := wantAs[manage.Pairing](g, anna, 200, "POST", "/pairings/approve", pairingBody(code, `,"name":"rack"`))
	con, ok := g.store.Connector(approved.Connector)
	if approved.State != store.PairingApproved || approved.DecidedBy != "anna" || approved.Code != "" || !ok ||
		con.Name != "rack" {
		t.Errorf("approved = %+v, connector %+v", approved, con)
	}
	wantAs[map[string]any](g, anna, 409, "POST", "/pairings/deny", pairingBody(started.ID, ""))

	second := wantAs[manage.Pairing](g, anna, 201, "POST", "/pairings", "{}")
	denied := wantAs[manage.Pairing](g, anna, 200, "POST", "/pairings/deny", pairingBody(second.ID, ""))
	if denied.State != store.PairingDenied || denied.Code != "" {
		t.Errorf("denied = %+v", denied)
	}
	if list = wantAs[[]manage.Pairing](g, anna, 200, "GET", "/pairings", ""); len(list) != 2 || list[0].ID != second.ID {
		t.Errorf("the newest is not the first: %+v", list)
	}
	for _, code := range []string{started.Code, second.Code, code} {
		if strings.Contains(g.log.String(), code) {
			t.Errorf("the log has a pairing code:\n%s", g.log)
		}
	}
	g.endpoint.Public = ""
	g.refused(anna, 409, "POST", "/pairings", "{}", "`public gw.example.com:7443`")
}

// TestPairingAgain: a machine that lost its configuration replaces its connector.
func TestPairingAgain(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	pair := func(hostname string) manage.Pairing {
		t.Helper()
		started := wantAs[manage.Pairing](g, anna, 201, "POST", "/pairings", "{}")
		g.device(started.Code, hostname)
		return wantAs[[]manage.Pairing](g, anna, 200, "GET", "/pairings", "")[0]
	}
	first := pair("vm")
	if first.Namesake != nil {
		t.Errorf("the first device has the namesake %+v", first.Namesake)
	}
	id := wantAs[manage.Pairing](g, anna, 200, "POST", "/pairings/approve", pairingBody(first.ID, "")).Connector
	want[map[string]any](g, 200, "PUT", "/deployments/m", `{"connector":"vm"}`)

	again := pair("vm")
	if n := again.Namesake; n == nil || *n != (manage.Namesake{ID: id, Name: "vm", State: manage.Offline}) {
		t.Errorf("the namesake is %+v", again.Namesake)
	}
	g.tunnels.connect(tunnel.Info{Connector: id})
	if list := wantAs[[]manage.Pairing](g, anna, 200, "GET", "/pairings", ""); list[0].Namesake.State != manage.Online ||
		list[1].Namesake != nil {
		t.Errorf("the pairings are %+v", list)
	}
	wantAs[map[string]any](g, anna, 400, "POST", "/pairings/approve", pairingBody(again.ID, `,"name":"x","replace":"vm"`))
	wantAs[map[string]any](g, anna, 400, "POST", "/pairings/approve", pairingBody(again.ID, `,"replace":""`))
	wantAs[map[string]any](g, anna, 404, "POST", "/pairings/approve", pairingBody(again.ID, `,"replace":"nosuch"`))
	replaced := wantAs[manage.Pairing](g, anna, 200, "POST", "/pairings/approve", pairingBody(again.ID, `,"replace":"vm"`))
	if replaced.Connector != id || !replaced.Replaced || replaced.Namesake != nil ||
		len(g.store.Connectors("default")) != 1 {
		t.Errorf("replaced = %+v, connectors %+v", replaced, g.store.Connectors("default"))
	}
	if !strings.Contains(g.log.String(), "pairing.replace") {
		t.Errorf("the log does not mention it:\n%s", g.log)
	}
}

// pairingBody returns a body that names a pairing, with more fields.
func pairingBody(codeOrID, more string) string { return `{"pairing":"` + codeOrID + `"` + more + `}` }

// The code is not in the log of an internal error.
func TestClaimCodeIsNotLogged(t *testing.T) {
	g := newGateway(t)
	must(t, g.store.Close())
	if w := g.do("POST", "/pairings/approve", pairingBody("PAIR-1234-5678", "")); w.Code < 400 {
		t.Errorf("status = %d", w.Code)
	}
	if strings.Contains(g.log.String(), "1234") {
		t.Errorf("the log has a pairing code:\n%s", g.log)
	}
}

// A device with another fingerprint is not approved.
func TestApproveByFingerprint(t *testing.T) {
	g := newGateway(t)
	p := want[manage.Pairing](g, 201, "POST", "/pairings", "{}")
	w := g.do("POST", "/pairings/approve", `{"pairing":"`+p.Code+`","fingerprint":"3f9a"}`)
	if w.Code != 409 || !strings.Contains(w.Body.String(), "no device") {
		t.Errorf("without a device: %d %s", w.Code, w.Body)
	}
	g.device(p.Code, "vm")
	for _, wrong := range []string{"3f9a 07c2 b1d5", "3f9a", "3f9a 07c2 b1d4 0000"} {
		w := g.do("POST", "/pairings/approve", `{"pairing":"`+p.Code+`","fingerprint":"`+wrong+`"}`)
		if w.Code != 409 || len(g.store.Connectors("default")) != 0 {
			t.Errorf("%s: %d %s", wrong, w.Code, w.Body)
		}
		wantError(t, w, "different fingerprint, 3f9a 07c2 b1d4")
	}
	if approved := want[manage.Pairing](g, 200, "POST", "/pairings/approve",
		`{"pairing":"`+p.ID+`","fingerprint":"3F9A 07c2b1D4"}`); approved.Connector == "" {
		t.Errorf("approved = %+v", approved)
	}
}
