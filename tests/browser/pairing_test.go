package browser

import (
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// A machine that was installed again replaces its old connector, after the user has compared both.
func testReplacedDevice(t *testing.T, r *rig) {
	p := r.newUser("replaced", "ron")
	pair := func(config string) *harness.Process {
		device := r.Pair(t, config, r.startPairing(p), r.model, "--name", "gpu-box")
		p.Sees(r.fingerprint(device))
		return device
	}
	first := pair("first")
	p.Press("Approve")
	p.publish()
	key := r.key(p, "laptop", "*")
	r.expectChat(key, "scripted", http.StatusOK)

	second := pair("second")
	p.Sees("A connector named gpu-box is already online")
	p.Look("start-device-online")
	p.Open("/console/connectors") // this page also has the decision
	p.Sees("waiting for approval")
	p.Look("connectors-device")
	p.Open("/console/start")
	first.Kill()
	p.Sees("A connector named gpu-box is offline") // without a reload
	p.Look("start-device-again")
	p.Open("/console/connectors")
	if last := p.Text("td.mono.muted"); !strings.HasPrefix(last, "127.0.0.1:") {
		t.Errorf("the last address of an offline connector is %q", last)
	}
	p.Open("/console/start")
	p.Press("Approve as…")
	p.Sees("Or replace a connector")
	p.Look("pairing-again")
	p.Open("/console/start")
	p.Press("Replace gpu-box…")
	p.Sees("The waiting device")
	p.Look("pairing-replace")
	p.Press("Replace gpu-box")
	p.Sees("gpu-box approved; it replaces the connector gpu-box.")
	p.Open("/console/connectors")
	p.Sees("1 of 1 online")
	p.SeesNot("gpu-box-2")
	r.expectChat(key, "scripted", http.StatusOK)
	if !second.Running() {
		t.Error("the connector has ended")
	}
}
