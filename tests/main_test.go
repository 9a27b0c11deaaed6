// Package tests holds the end-to-end tests: the real gateway, the real
// connector, real clients, and behind them a scripted upstream or a real
// llama-server. `go test ./tests/...` builds the binaries if sources changed.
//
// Tests that assert short times are not parallel; all others are.
package tests

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil { // most tests wait for processes
		panic(err)
	}
	harness.Main(m)
}

// A rig is a gateway with one connector to one scripted upstream, and a key
// for everything.
type rig struct {
	*harness.Gateway
	*harness.Client
	up    *upstream.Server
	con   *harness.Connector
	keyID string
}

// newRig starts a rig of processes.
func newRig(t *testing.T, o harness.Options) *rig {
	t.Helper()
	return rigOf(t, harness.Start(t, o))
}

// newInProcess is newRig without processes, for tests that neither need Caddy nor end a process.
func newInProcess(t *testing.T, o inprocess.Options) *rig {
	t.Helper()
	return rigOf(t, harness.StartInProcess(t, o))
}

func rigOf(t *testing.T, g *harness.Gateway) *rig {
	t.Helper()
	r := &rig{Gateway: g, up: upstream.Start(t)}
	id, key := r.Gateway.Key(t, "all", "*")
	r.keyID = id
	r.Client = r.Gateway.Client(t, key)
	r.con = r.Connector(t, "box", r.up.URL)
	return r
}

// serve deploys a model, and sets its handler at the upstream. Its name there is "up-" and the name.
func (r *rig) serve(t *testing.T, name string, h upstream.Handler) {
	t.Helper()
	r.up.Handle(up(name), h)
	r.Deploy(t, name, r.con.ID, "", up(name))
}

func up(name string) string { return "up-" + name }

// TestOneGateway has the tests that share a gateway, each with its own account.
func TestOneGateway(t *testing.T) {
	t.Parallel()
	shared := harness.Start(t, harness.Options{Console: true})
	for name, test := range map[string]func(t *testing.T, g *harness.Gateway){
		"completion": testCompletion, "stream is not buffered": testStreamIsNotBuffered, "large messages": testLargeMessages,
		"access log": testAccessLog, "key in other header": testKeyInOtherHeaderIsNotLogged,
		"concurrency of a key": testKeyConcurrency, "groups": testGroups,
		"removed connector": testRemovedConnector, "connector started twice": testConnectorStartedTwice,
		"configuration errors": testConnectorConfigurationErrors, "states": testTrueState,
		"killed connector": testConnectorKilledUnderLoad, "rotation": testRotation,
		"media servers": testMediaServers, "speech is not buffered": testSpeechIsNotBuffered,
		"media canceled": testMediaCancel, "media out of scope": testMediaScope,
		"pairing": testPairingByTheCommandLine, "pairing again": testPairingAgain, "one approval wins": testOneApprovalWins,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shared.WithAccount(t, strings.ReplaceAll(name, " ", "-")))
		})
	}
}

// lines joins events, or any strings.
func lines(s ...string) string { return strings.Join(s, "") }

// expectStreamError checks that an event reports the death of the upstream in a stream, with any message.
func expectStreamError(t *testing.T, event string) {
	t.Helper()
	const head, tail = `data: {"error":{"message":"`, `","type":"server_error","param":null,"code":"upstream_error"}}` +
		"\n\n"
	if !strings.HasPrefix(event, head) || !strings.HasSuffix(event, tail) || len(event) <= len(head)+len(tail) {
		t.Errorf("the stream's last event is %q, not an error", event)
	}
}

// must fails the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read returns the content of a file.
func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

// served checks that an answer is whole and has status 200.
func served(t *testing.T, a harness.Answer, what string) {
	t.Helper()
	if a.Status != 200 || a.Err != nil {
		t.Errorf("%s: status %d, %v, %s", what, a.Status, a.Err, clip(a.Body))
	}
}
