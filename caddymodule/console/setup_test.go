package console

import (
	"fmt"
	"html"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// deviceSecret is the secret that a device creates.
const deviceSecret = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"

// code starts a pairing on the Setup tab and returns its code.
func (g *browser) code() string {
	g.Helper()
	g.goes(g.post("/console/start/pairing"), "/console/start#pair")
	_, rest, ok := strings.Cut(g.page("/console/start"), `<p class="claim mono">`)
	code, _, _ := strings.Cut(rest, "<")
	if !ok || !strings.HasPrefix(code, "PAIR-") {
		g.Fatalf("the Setup tab shows the code %q", code)
	}
	return code
}

// TestPairingLimited: the Setup tab warns while devices may be refused unchecked.
func TestPairingLimited(t *testing.T) {
	g := newGateway(t)
	g.code()
	const text = "Many wrong pairing codes are being tried"
	guess := func(n int) {
		for i := range n {
			_, deny := g.desk.Claim(t.Context(), tunnel.Device{
				Code: "PAIR-0000-0000", Secret: deviceSecret, Hostname: "box", Remote: fmt.Sprintf("10.%d.%d.1", i>>8, i&0xff),
				Upstreams: []string{"default"},
			})
			if deny == nil {
				t.Fatal("a wrong code is taken")
			}
		}
	}
	if guess(100); strings.Contains(g.page("/console/start"), text) {
		t.Error("it warns after some wrong codes")
	}
	if guess(6000); !strings.Contains(g.page("/console/start"), text) {
		t.Error("it does not warn although codes are refused")
	}
}

// claim uses a code as a device.
func (g *browser) claim(code, hostname string) tunnel.Ticket {
	g.Helper()
	ticket, deny := g.desk.Claim(g.Context(), tunnel.Device{
		Code: code, Secret: deviceSecret, Hostname: hostname, OS: "linux/amd64", Version: "v9.9.9", Remote: "203.0.113.7",
		Upstreams: []string{"default"},
	})
	if deny != nil {
		g.Fatalf("the code is refused: %v", deny)
	}
	g.Cleanup(ticket.Release)
	return ticket
}

// removeDownloads removes the connectors that the gateway hands out.
func (h *house) removeDownloads() {
	folder, _ := h.console.Manage.Downloads()
	for _, a := range folder.Archives() {
		must(h, os.Remove(filepath.Join(folder.Path(), a.Name)))
	}
}

// A gateway that was built without connectors says how to get one.
func TestSetupWithoutConnectors(t *testing.T) {
	g := newGateway(t)
	g.removeDownloads()
	code := g.code()
	page := html.UnescapeString(mainOf(g.page("/console/start")))
	has(t, page, "This gateway has no connectors to hand out.", "./xcaddy.sh connectors",
		"connector pair https://gw.example.com "+code)
	lacks(t, page, "install.sh", "release")
}

// pairing returns a pairing in a state.
func (g *browser) pairing(state string) store.Pairing {
	g.Helper()
	for _, p := range g.store.Pairings(store.DefaultAccount) {
		if p.State == state {
			return p
		}
	}
	g.Fatalf("no pairing is %s", state)
	return store.Pairing{}
}

func TestSetupFromTheBeginning(t *testing.T) {
	g := newGateway(t)
	has(t, mainOf(g.page("/console/start")), "0 of 4 done", "Start pairing", "Publish a model to get a command")
	code := g.code()
	page := html.UnescapeString(mainOf(g.page("/console/start")))
	has(t, page, "curl -fsSL https://gw.example.com/console/install.sh | sh -s -- "+code+
		" --upstream http://localhost:11434",
		"irm 'https://gw.example.com/console/install.ps1'))) '"+code+"'",
		"connector pair https://gw.example.com "+code, "New code", "data-expires", "Cancel this code")

	ticket := g.claim(code, "gpu-box")
	page = mainOf(g.page("/console/start"))
	has(t, page, "gpu-box", "linux/amd64", "v9.9.9", "203.0.113.7", ticket.Fingerprint, "waiting for approval")
	lacks(t, page, code)

	id := g.pairing(store.PairingPending).ID
	g.goes(g.post("/console/pairings/"+id+"/approve", "back", "start"), "/console/start")
	if d := <-ticket.Decided; d.Deny != nil || d.TunnelToken == "" {
		t.Fatalf("the device is denied: %+v", d.Deny)
	}
	page = mainOf(g.page("/console/start"))
	has(t, page, "gpu-box approved.", "gpu-box is connecting",
		"The models of gpu-box appear here as soon as it is online.", "1 of 4 done")
	lacks(t, page, "No models found", "waiting for approval", deviceSecret, "ptt_")

	con := g.store.Connectors(store.DefaultAccount)[0]
	g.lines.connect(con, "llama3.2:3b")
	page = mainOf(g.page("/console/start"))
	has(t, page, "llama3.2:3b", `aria-label="Publish llama3.2:3b"`)
	lacks(t, page, "approved", "connecting") // it is online
	if n := g.lines.asked.Load(); n != 0 {
		t.Errorf("the page asked the model server %d times", n)
	}
	g.goes(g.post("/console/start/register", "only", con.ID+"  llama3.2:3b"), "/console/start")
	page = html.UnescapeString(mainOf(g.page("/console/start")))
	has(t, page, "Published: llama3.2:3b.", "2 of 4 done", `"model": "llama3.2:3b"`)
	lacks(t, page, `aria-label="Publish`)
}

// Clients must trust a private authority before the snippets work. Plain HTTP has none.
func TestPrivateAuthority(t *testing.T) {
	g := newGateway(t)
	g.deployment("m", g.connector("box"))
	pages := []string{"/console/start", "/console/models/show?name=m"}
	const text = "--cacert root.crt"
	for _, path := range pages {
		lacks(t, g.page(path), text)
	}
	g.endpoint.Verified = false
	for _, path := range pages {
		has(t, g.page(path), text)
	}
	g.endpoint.URL = "http://10.0.0.5"
	for _, path := range pages {
		lacks(t, g.page(path), text)
	}
}

func TestPairingUnderAnotherName(t *testing.T) {
	g := newGateway(t)
	g.claim(g.code(), "gpu-box")
	id := g.pairing(store.PairingPending).ID
	page := mainOf(g.page("/console/pairings/" + id + "?back=connectors"))
	has(t, page, `value="gpu-box"`, `name="back" value="connectors"`)

	w := g.post("/console/pairings/"+id+"/approve", "back", "connectors", "name", "a\x01b")
	g.refused(w, http.StatusBadRequest, "")
	has(t, w.Body.String(), "unprintable", "/console/pairings/"+id+"/approve")
	g.goes(g.post("/console/pairings/"+id+"/approve", "back", "connectors", "name", "big one"), "/console/connectors")
	has(t, mainOf(g.page("/console/connectors")), "gpu-box approved as big one.")
	has(t, mainOf(g.page("/console/start")), "big one is connecting")
	if c := g.store.Connectors(store.DefaultAccount); len(c) != 1 || c[0].Name != "big one" {
		t.Errorf("connectors: %+v", c)
	}
	g.refused(g.get("/console/pairings/"+id), http.StatusNotFound, "")
	if w := g.post("/console/pairings/"+id+"/approve", "back", "start"); w.Code != http.StatusConflict &&
		w.Code != http.StatusNotFound {
		t.Errorf("approving again: status %d", w.Code)
	}
}

// A device that has disconnected cannot be approved, and is not on the page of connectors.
func TestStaleDevice(t *testing.T) {
	g := newGateway(t)
	ticket := g.claim(g.code(), "vm")
	id := g.pairing(store.PairingPending).ID
	has(t, mainOf(g.page("/console/start")), `button-primary">Approve<`)
	has(t, mainOf(g.page("/console/connectors")), `button-primary">Approve<`)
	ticket.Release()
	for _, path := range []string{"/console/start", "/console/pairings/" + id} {
		page := mainOf(g.page(path))
		has(t, page, "vm</strong> has disconnected and cannot be approved", "/console/pairings/"+id+"/deny")
		lacks(t, page, ">Approve<", "/approve")
	}
	lacks(t, mainOf(g.page("/console/connectors")), "has disconnected", "/console/pairings/")
}

func TestPairingAgain(t *testing.T) {
	g := newGateway(t)
	g.claim(g.code(), "vm")
	g.goes(g.post("/console/pairings/"+g.pairing(store.PairingPending).ID+"/approve", "back", "start"), "/console/start")
	before := g.store.Connectors(store.DefaultAccount)[0]

	ticket := g.claim(g.code(), "vm")
	id := g.pairing(store.PairingPending).ID
	page := mainOf(g.page("/console/start"))
	has(t, page, "A connector named vm is offline", `<button class="button button-primary">Approve as new<`,
		"/console/pairings/"+id+"/replace?connector="+before.ID, ">Replace vm…<")
	lacks(t, page, `name="replace"`) // not by one click
	page = mainOf(g.page("/console/pairings/" + id + "/replace?connector=" + before.ID + "&back=connectors"))
	has(t, page, "Replace vm?", g.pairing(store.PairingPending).Device.Fingerprint, "The connector now",
		"The waiting device", `name="replace" value="`+before.ID+`"`, `href="/console/connectors"`)
	g.refused(g.get("/console/pairings/"+id+"/replace?connector=con_nosuch"), http.StatusBadRequest, "")
	page = mainOf(g.page("/console/pairings/" + id))
	has(t, page, `<option value="`+before.ID+`" selected>vm, offline`, `name="name" value=""`)
	w := g.post("/console/pairings/"+id+"/approve", "back", "start", "replace", "con_nosuch")
	g.refused(w, http.StatusNotFound, "")
	has(t, w.Body.String(), "not found in", "/console/pairings/"+id+"/approve")

	w = g.post("/console/pairings/"+id+"/approve", "back", "start", "replace", "")
	g.refused(w, http.StatusBadRequest, "")
	has(t, w.Body.String(), "Choose the connector", "/console/pairings/"+id+"/approve")

	g.lines.connect(before) // now it may be another machine
	page = mainOf(g.page("/console/start"))
	has(t, page, "A connector named vm is already online", ">Approve as new<")
	lacks(t, page, "Replace vm")

	g.goes(g.post("/console/pairings/"+id+"/approve", "back", "start", "replace", before.ID), "/console/start")
	if d := <-ticket.Decided; d.Deny != nil || d.TunnelToken == "" {
		t.Fatalf("the device is denied: %+v", d.Deny)
	}
	has(t, mainOf(g.page("/console/start")), "vm approved; it replaces the connector vm.")
	if c := g.store.Connectors(store.DefaultAccount); len(c) != 1 || c[0].ID != before.ID || c[0].Pairing != id {
		t.Errorf("connectors: %+v", c)
	}
}

func TestPairingDenied(t *testing.T) {
	g := newGateway(t)
	ticket := g.claim(g.code(), "gpu-box")
	id := g.pairing(store.PairingPending).ID
	has(t, mainOf(g.page("/console/connectors")), "waiting for approval", ticket.Fingerprint)
	g.goes(g.post("/console/pairings/"+id+"/deny", "back", "connectors"), "/console/connectors")
	if d := <-ticket.Decided; d.Deny == nil || d.TunnelToken != "" {
		t.Error("the device is not denied")
	}
	has(t, mainOf(g.page("/console/connectors")), "gpu-box is denied")
	has(t, mainOf(g.page("/console/start")), "gpu-box was denied")
}

func TestCodeCancelled(t *testing.T) {
	g := newGateway(t)
	code := g.code()
	g.goes(g.post("/console/pairings/"+g.pairing(store.PairingWaiting).ID+"/deny"), "/console/start")
	page := mainOf(g.page("/console/start"))
	has(t, page, "The code is canceled.", "Start pairing")
	lacks(t, page, code)
}

// A newer code is shown first; the older one can still be canceled.
func TestTwoCodes(t *testing.T) {
	g := newGateway(t)
	first := g.code()
	time.Sleep(2 * time.Millisecond)
	second := g.code()
	page := mainOf(g.page("/console/start"))
	has(t, page, first, second)
	if first == second || strings.Index(page, second) > strings.Index(page, first) {
		t.Error("the newer code is not the first")
	}
	if n := strings.Count(page, `id="tab-unix"`); n != 1 {
		t.Errorf("%d sets of lines, want 1", n)
	}
}

func TestCodeExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		g.code()
		time.Sleep(store.PairingLife + time.Second)
		has(t, mainOf(g.page("/console/start")), "The last code expired", "Start pairing")
		time.Sleep(endedNews)
		lacks(t, mainOf(g.page("/console/start")), "expired")
	})
}

func TestSetupWithoutAddress(t *testing.T) {
	g := newGateway(t)
	g.endpoint.Public = ""
	w := g.post("/console/start/pairing")
	g.refused(w, http.StatusConflict, "")
	has(t, mainOf(w.Body.String()), "caddy reload", "0 of 4 done")
}

func TestDeviceNamesAreText(t *testing.T) {
	g := newGateway(t)
	g.claim(g.code(), mean)
	id := g.pairing(store.PairingPending).ID
	plain(t, g.page("/console/start"))
	plain(t, g.page("/console/connectors"))
	plain(t, g.page("/console/pairings/"+id))
	g.post("/console/pairings/"+id+"/approve", "back", "start")
	plain(t, g.page("/console/start"))
	g.lines.connect(g.store.Connectors(store.DefaultAccount)[0], mean)
	plain(t, g.page("/console/start"))
}

// Each offer has a field for its name. One button publishes all of them, but adds no connector to a published model.
func TestPublishAll(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	gpu, mini := g.connector("gpu-box"), g.connector("mac-mini")
	g.deployment("qwen3", gpu)
	g.lines.connect(gpu, "qwen3", "gemma", "llama+3", "phi")
	g.lines.connect(mini, "qwen3")
	page := mainOf(g.page("/console/start"))
	has(t, page, `name="name `+gpu.ID+`  gemma" value="gemma"`, ">Publish all<", ">Add<", "<button disabled hidden>")
	field := func(model string) string { return "name " + gpu.ID + "  " + model }
	all := []string{"only", "all", field("gemma"), "google/gemma", field("llama+3"), "bad name"}
	wrong := g.post("/console/start/register", all...)
	has(t, wrong.Body.String(), "llama+3: The deployment name", `value="bad name"`)
	if wrong.Code != http.StatusBadRequest {
		t.Errorf("status %d", wrong.Code)
	}
	all[5] = "llama"
	g.goes(g.post("/console/start/register", all...), "/console/start")
	has(t, g.page("/console/start"), "Published: ")
	for name, model := range map[string]string{"google/gemma": "gemma", "llama": "llama+3"} {
		if d, _ := g.store.Deployment(store0, name); d.Model != model || !slices.Equal(d.Connectors, []string{gpu.ID}) {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if _, ok := g.store.Deployment(store0, "phi"); ok {
		t.Error("a model that the page has not shown is published")
	}
	if d, _ := g.store.Deployment(store0, "qwen3"); len(d.Connectors) != 1 {
		t.Errorf("a connector was added: %+v", d)
	}
	g.goes(g.post("/console/start/register", "only", mini.ID+"  qwen3"), "/console/start")
	if d, _ := g.store.Deployment(store0, "qwen3"); len(d.Connectors) != 2 {
		t.Errorf("the connector was not added: %+v", d)
	}
	g.refused(g.post("/console/start/register", "only", mini.ID+"  qwen3"), http.StatusNotFound, "no longer offered")
}
