package browser

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/harness"
)

// notPaired is the exit code of a connector whose code does not work.
const notPaired = 3

func testDeniedDevice(t *testing.T, r *rig) {
	p := r.newUser("denied", "dan")
	device := r.Pair(t, "stranger", r.startPairing(p), r.model)
	p.Sees(r.fingerprint(device))
	p.Open("/console/connectors") // where it can be decided, too
	p.Sees("waiting for approval")
	p.Look("connectors-device")
	p.Press("Deny")
	p.SeesNot("waiting for approval")
	if code := device.WaitExit(t, patience); code != notPaired || !strings.Contains(device.Log(), "denied") {
		t.Errorf("the denied device: exit code %d\n%s", code, device.Log())
	}
	p.Open("/console/start")
	p.Sees("was denied")
	p.Sees("0 of 4 done")
}

// A machine that was set up anew gets its old place, after a look at both.
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
	first.Kill()
	p.Sees("A connector named gpu-box is offline") // by itself
	p.Look("start-device-again")
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

// The gateway is down when the code runs out. The device, which has waited for
// it, says what happened, and so does the console.
func TestExpiredDevice(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.firstUser("ada")
	device := r.Pair(t, "late", r.startPairing(p), r.model)
	p.Sees(r.fingerprint(device))
	p.Expect("ERR_CONNECTION_REFUSED") // the page asks a gateway that is down
	p.Expect("ERR_INCOMPLETE_CHUNKED_ENCODING")
	p.Expect("sse") // htmx tells of it
	r.Process.Kill()
	r.runOut()
	r.Restart(t)
	if code := device.WaitExit(t, patience); code != notPaired || !strings.Contains(device.Log(), "ran out") && !strings.Contains(device.Log(), "expired") {
		t.Errorf("the late device: exit code %d\n%s", code, device.Log())
	}
	p.Open("/console/start")
	p.Sees("expired")
	p.Look("start-expired")
	code := r.startPairing(p) // and on with a new one
	p.Sees(code)
}

// runOut puts the end of all pairing codes into the past, in the file of a
// gateway that does not run.
func (r *rig) runOut() {
	r.t.Helper()
	must := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	kv, err := store.OpenBolt(filepath.Join(r.Dir, "gateway.db"), store.BoltOptions{})
	must(err)
	ctx := r.t.Context()
	pairings, err := kv.Range(ctx, store.Prefix("pairings/"))
	must(err)
	if len(pairings.Items) == 0 {
		r.t.Fatal("the store has no pairing")
	}
	for _, item := range pairings.Items {
		record := map[string]any{}
		must(json.Unmarshal(item.Value, &record))
		record["expires_at"] = time.Now().Add(-time.Minute).UTC()
		value, err := json.Marshal(record)
		must(err)
		_, err = kv.Txn(ctx, store.Txn{Then: []store.Op{store.Put(item.Key, value)}})
		must(err)
	}
	must(kv.Close())
}
