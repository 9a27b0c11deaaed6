package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
)

// TestMain makes the test binary what the bench starts for its own processes,
// and builds the binaries that are measured.
func TestMain(m *testing.M) {
	program().RunRole()
	harness.Main(m)
}

// tinyRun does everything once, as little of it as possible.
func tinyRun() options {
	o := quickRun()
	o.Clients, o.Load, o.Warmup = []int{1, aimClients}, 100*time.Millisecond, 20*time.Millisecond
	o.Streams, o.Stream = []int{1, aimStreams}, 400*time.Millisecond
	o.Answers, o.AnswerClients = 200, 8
	o.Tunnels, o.Settle, o.Counted = []int{5}, 200*time.Millisecond, 200
	o.Loss, o.RTT = []float64{1}, 2*time.Millisecond
	return o
}

// TestRun takes no time into account: it shows that every part works, that all
// answers are right, and that the report has all of its figures.
func TestRun(t *testing.T) {
	o := tinyRun()
	network := os.Getenv("POSTERN_SKIP_NETWORK") != "1"
	if !network {
		o.Loss = nil
	}
	r, err := run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if network && (r.Loss == nil || r.Loss.Missing != "") {
		t.Errorf("on a lossy line there is %+v; set POSTERN_SKIP_NETWORK=1 to leave that out", r.Loss)
	}
	if err := r.failure(); err != nil {
		t.Error(err)
	}
	var b bytes.Buffer
	r.write(&b)
	report := b.String()
	for _, want := range []string{
		"### Aims", "### Requests", "### Streams", "### Transports", "### Streamed answers", "### Allocations", "### Memory",
		"### Idle tunnels",
		fmt.Sprintf("| 0 of %d |", o.Answers), "gateway, 5 tunnels: quic", "gateway, 5 tunnels: websocket", "5 idle tunnels: KB each",
		"| websocket | connector |",
	} {
		if !strings.Contains(strings.Join(strings.Fields(report), " "), want) {
			t.Errorf("the report has no %q", want)
		}
	}
	for _, missing := range []string{"–", "NaN", "not finished"} {
		if strings.Contains(strings.ReplaceAll(report, "(range)", ""), "| "+missing+" |") || strings.Contains(report, "not finished") {
			t.Errorf("the report holds %q: a figure is missing", missing)
		}
	}
	if got := len(r.aims()); got != 6 {
		t.Errorf("there are %d aims, want 6", got)
	}
	if t.Failed() {
		t.Log("\n" + report)
	}
}

func TestFlags(t *testing.T) {
	o, err := parseFlags([]string{"-rounds", "7", "-quick", "-systems", "direct,caddy"})
	if err != nil {
		t.Fatal(err)
	}
	if o.Rounds != 7 || o.Load != quickRun().Load || o.has(postern) {
		t.Errorf("options %+v", o)
	}
	if o, err = parseFlags([]string{"-parts", "idle,loss", "-systems", "websocket", "-tunnels", "7,8", "-loss", "0.5"}); err != nil {
		t.Fatal(err)
	}
	if o.measures(partRequests) || !o.measures(partLoss) || !slices.Equal(o.tunnels(), []string{webSocket}) ||
		!slices.Equal(o.Tunnels, []int{7, 8}) || !slices.Equal(o.Loss, []float64{0.5}) {
		t.Errorf("options %+v", o)
	}
	for _, wrong := range [][]string{
		{"-rounds", "0"},
		{"-load", "2h"},
		{"-tunnels", "1000,0"},
		{"-tunnels", "many"},
		{"-clients", "1,5000"},
		{"-loss", "NaN"},
		{"-parts", "requests,memory"},
		{"-systems", "caddy"},
		{"more"},
	} {
		if _, err := parseFlags(wrong); err == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
}
