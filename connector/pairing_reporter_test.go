package main

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
)

// output is a writer that a test can read meanwhile.
type output struct {
	mu    sync.Mutex
	text  strings.Builder
	until string // found is called when it is written
	found func() // nil: not set
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.text.Write(p)
	if o.found != nil && strings.Contains(o.text.String(), o.until) {
		o.found()
	}
	return n, err
}

// notify calls found when the output contains until.
func (o *output) notify(until string, found func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.until, o.found = until, found
	if strings.Contains(o.text.String(), until) {
		found()
	}
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func TestTerminalReporter(t *testing.T) {
	var out output
	r := &pairingReporter{w: &out}
	ends := time.Date(2026, 11, 21, 14, 38, 5, 0, time.Local)
	pending := link.Pending{Fingerprint: "3f9a 07c2 b1d4", ExpiresAt: ends.UTC()}
	r.warn("the model server sleeps")
	r.found("https://gw.example.com", dial.Gateway{Server: "gw.example.com:7443"})
	r.pending(pending, "https://gw.example.com/console/")
	r.interrupted("the gateway was restarted", "", 300*time.Millisecond)
	r.pending(pending, "https://gw.example.com/console/")
	r.interrupted("no answer over UDP", "check the firewall", 4*time.Second)
	r.paired("/home/me/.config/postern/connector.json")
	want := `Warning: the model server sleeps
Pairing with https://gw.example.com (tunnels at gw.example.com:7443)

  Approve this machine at https://gw.example.com/console/
  if it shows this fingerprint:  3f9a 07c2 b1d4

Waiting for approval until 14:38:05
Interrupted: the gateway was restarted. Trying again in 1s.
Waiting for approval until 14:38:05
Interrupted: no answer over UDP; check the firewall. Trying again in 4s.
Approved. This machine is paired; its token is in /home/me/.config/postern/connector.json
Start it later with: connector run --config /home/me/.config/postern/connector.json
`
	if got := out.String(); got != want {
		t.Errorf("it prints:\n%s", got)
	}
}

func TestTerminalReporterWithoutAConsole(t *testing.T) {
	var out output
	r := &pairingReporter{w: &out}
	r.pending(link.Pending{Fingerprint: "3f9a 07c2 b1d4", ExpiresAt: time.Now()}, "")
	if !strings.Contains(out.String(), "on the gateway's machine with `caddy gateway pairing approve CODE") {
		t.Errorf("it prints %q", out.String())
	}
}

// TestTerminalReporterIsLegible: neither a gateway nor a server that pretends to be one can
// send sequences to the terminal.
func TestTerminalReporterIsLegible(t *testing.T) {
	var out output
	r := &pairingReporter{w: &out}
	r.warn("the model server sends \x1b]0;title\x07")
	r.interrupted("closed: \x1b[2J\u009b1m\rno", "", time.Second)
	want := "Warning: the model server sends ]0;title\nInterrupted: closed: [2J1mno. Trying again in 1s.\n"
	if got := out.String(); got != want {
		t.Errorf("it prints %q", got)
	}
}
