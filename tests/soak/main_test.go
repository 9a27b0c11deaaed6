package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
)

// TestMain makes the test binary what a run starts for its own processes, and
// builds the binaries.
func TestMain(m *testing.M) {
	program().RunRole()
	harness.Main(m)
}

// A minute of everything with fifty connectors. It finds what breaks at once,
// and shows that the command works; growth takes longer.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("a soak of a minute takes too long for -short")
	}
	r, err := soak(t.Context(), options{Length: time.Minute, Connectors: 50, Real: 4, Rate: 10, Seed: 1})
	if err != nil {
		t.Error(err)
	}
	if r == nil {
		t.FailNow()
	}
	if err := r.failure(); err != nil {
		t.Error(err)
	}
	var b bytes.Buffer
	r.write(&b)
	report := b.String()
	for _, want := range []string{"### Requests", "### Faults", "### Memory, goroutines, files", "### Without a cause: 0"} {
		if !strings.Contains(report, want) {
			t.Errorf("the report has no %q", want)
		}
	}
	if r.tally.fine < 20 {
		t.Errorf("only %d requests had their answer", r.tally.fine)
	}
	made := map[string]bool{}
	for _, s := range r.log.summaries() {
		made[s.name] = true
	}
	// On a slow machine a minute is too short for each of them.
	for lane, kinds := range map[string][]*faultKind{
		"gateway":       {&gatewayReloaded, &gatewayRestarted, &gatewayKilled},
		"connectors":    {&connectorKilled, &connectorFrozen, &connectorHeldUp, &connectorRestarted, &connectorReloaded},
		"hosts":         {&hostFrozen},
		"paths":         {&pathLossy, &pathSlow, &pathRebound, &pathFlickers, &pathDark},
		"model servers": {&upstreamKilled},
		"management":    {&deploymentMoved, &keyMade, &keyRevoked},
	} {
		if !slices.ContainsFunc(kinds, func(k *faultKind) bool { return made[k.name] }) {
			t.Errorf("no fault of this lane was made: %s", lane)
		}
	}
	if t.Failed() {
		t.Log("\n" + report)
	}
}

func TestFlags(t *testing.T) {
	o, err := parseFlags([]string{"-minutes", "0.5", "-connectors", "60", "-rps", "5", "-seed", "9"})
	if err != nil {
		t.Fatal(err)
	}
	if o.Length != 30*time.Second || o.Connectors != 60 || o.Rate != 5 || o.Seed != 9 {
		t.Errorf("options %+v", o)
	}
	if o, err = parseFlags(nil); err != nil || o.Length != 30*time.Minute || o.Connectors != 500 || o.Seed == 0 {
		t.Errorf("options %+v, %v", o, err)
	}
	for _, bad := range [][]string{
		{"-minutes", "0.01"},
		{"-minutes", "1e9"},
		{"-connectors", "10"},
		{"-connectors", "100000"},
		{"-real", "1"},
		{"-rps", "0"},
		{"more"},
	} {
		if _, err := parseFlags(bad); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}
