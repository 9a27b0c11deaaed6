package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/command"
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

// newDirect returns the system that has only the upstream.
func newDirect(t *testing.T) (context.Context, *system) {
	t.Helper()
	ctx, processes, end, err := newRig(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	b, err := newBuilder(processes, loopback())
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.build(ctx, direct)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, s
}

// When a process ends in the middle of a measurement, that is the error, and
// not the broken connections that follow from it.
func TestRunNamesTheProcessThatEnded(t *testing.T) {
	ctx, s := newDirect(t)
	o := tinyRun()
	o.Load = 30 * time.Second
	time.AfterFunc(200*time.Millisecond, func() { _ = s.Processes[0].Signal(syscall.SIGKILL) })
	_, err := s.measureLoad(ctx, o, 4)
	if err == nil {
		t.Fatal("a dead upstream is no error")
	}
	if err = command.Explain(ctx, err); !strings.Contains(err.Error(), "upstream has ended by itself") {
		t.Errorf("the error is %v", err)
	}
}

func TestRunEndsWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := tinyRun()
	o.Systems = []string{direct}
	o.Load = time.Minute
	time.AfterFunc(500*time.Millisecond, cancel)
	began := time.Now()
	if _, err := run(ctx, o); err == nil {
		t.Error("an interrupted run has no error")
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it ended after %v", took)
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
		{"-stream", "1ms"},
		{"-tunnels", "100000"},
		{"-tunnels", "1000,0"},
		{"-tunnels", "many"},
		{"-clients", "1,5000"},
		{"-streams", "0"},
		{"-loss", "101"},
		{"-loss", "NaN"},
		{"-loss-rounds", "0"},
		{"-rtt", "1h"},
		{"-parts", "requests,memory"},
		{"-parts", "streams", "-systems", "postern"},
		{"-answers", "-1"},
		{"-systems", "caddy"},
		{"-systems", "direct,nginx"},
		{"more"},
	} {
		if _, err := parseFlags(wrong); err == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
}
