//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// TestMain runs the roles of the bench's processes in the test binary, and builds the binaries to measure.
func TestMain(m *testing.M) {
	program().RunRole()
	harness.Main(m)
}

// TestRun runs each part once, as shortly as possible. It ignores times, but checks that every part works,
// that all answers are correct, and that the report is complete.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the bench starts five systems")
	}
	o := fullRun()
	o.shorten()
	o.Clients, o.Load, o.Warmup = []int{1, 16}, 100*time.Millisecond, 20*time.Millisecond
	o.Streams, o.Stream = []int{1, 50}, 400*time.Millisecond
	o.RTT = 2 * time.Millisecond
	o.Tunnels, o.Settle = []int{5}, 200*time.Millisecond
	o.AnswerLimit = harness.Patience
	o.Compare, o.Systems = noting(t), []string{direct, plain, postern, old, webSocket}
	wants := []string{
		"### Streams of", "| 50 | websocket |",
		"### Closed loops", "| 16 | websocket |", "| 16 | old |", "### Memory", "gateway, 5 tunnels: postern",
		"gateway, 5 tunnels: old", "gateway, 5 tunnels: websocket", "### Idle tunnels",
	}
	if os.Getenv("POSTERN_SKIP_NETWORK") == "1" {
		o.Parts = slices.DeleteFunc(slices.Clone(o.Parts),
			func(part string) bool { return part == partTurns })
	} else {
		wants = append(wants, "| QUIC |", "| QUIC, old |", "| WebSocket |", "### Turn 20")
	}
	r, err := run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if ran, _ := filepath.Glob(filepath.Join(o.Compare, "*.ran")); len(ran) != 2 {
		t.Errorf("of the binaries to compare with, these ran: %v", ran)
	}
	var b strings.Builder
	r.write(&b)
	report := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range wants {
		if !strings.Contains(report, want) {
			t.Errorf("the report has no %q", want)
		}
	}
	for _, missing := range []string{"| – |", "NaN", "not finished"} {
		if strings.Contains(report, missing) {
			t.Errorf("the report holds %q: a figure is missing", missing)
		}
	}
	if !strings.HasPrefix(report[strings.Index(report, "###"):], "### Streams of") {
		t.Error("the report does not begin with paced streams")
	}
	if t.Failed() {
		t.Log("\n" + b.String())
	}
}

// noting returns a folder of binaries that create a file NAME.ran when they run.
func noting(t *testing.T) string {
	t.Helper()
	root, err := rig.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"caddy", "connector"} {
		script := fmt.Sprintf("#!/bin/sh\n: >\"$0.ran\"\nexec %q \"$@\"\n", filepath.Join(root, "bin", name))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFlags(t *testing.T) {
	o, err := parseFlags([]string{
		"-quick", "-rounds", "7", "-systems", "direct,caddy", "-parts", "requests,idle",
		"-compare", "old", "-tunnels", "7,8",
	})
	if err != nil {
		t.Fatal(err)
	}
	if o.Rounds != 7 || o.Load != time.Second || o.has(postern) || !o.has(old) || o.measures(partTurns) ||
		!slices.Equal(o.Tunnels, []int{7, 8}) {
		t.Errorf("options %+v", o)
	}
	for _, wrong := range []string{
		"-rounds 0", "-tunnels 1000,0", "-tunnels many", "-tunnels 20001", "-pace 0s",
		"-pace 1s", "-streams 1,6000", "-parts loss", "-systems direct,old", "-systems caddy", "more",
	} {
		if _, err := parseFlags(strings.Fields(wrong)); err == nil {
			t.Errorf("%s is accepted", wrong)
		}
	}
}

// serve answers one request with the given bytes and closes the connection.
func serve(t *testing.T, answer string) target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if _, err := c.Read(make([]byte, 100<<10)); err == nil {
			_, _ = io.WriteString(c, answer) // a client that has left reports its own error
		}
	}()
	return target{Addr: l.Addr().String()}
}

// The comparison of answers finds each kind of error.
func TestWrongAnswersAreSeen(t *testing.T) {
	const head, end = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "0\r\n\r\n"
	chunked := func(body string) string { return head + fmt.Sprintf("%x\r\n%s\r\n", len(body), body) }
	s := play.Script{Tokens: 4}
	right := string(s.AppendStream(nil, publicModel))
	stamped := play.Script{Tokens: 3, Stamp: true}
	stamps := string(stamped.AppendStream(nil, publicModel))
	for _, c := range []struct {
		name, answer string
		stamped, ok  bool
	}{
		{"right", chunked(right) + end, false, true},
		{"no last chunk", chunked(right), false, false},
		{"cut within a chunk", chunked(right)[:len(right)-20], false, false},
		{"no end marker", chunked(strings.TrimSuffix(right, "data: [DONE]\n\n")) + end, false, false},
		{"an event is missing", chunked(right[strings.Index(right, "\n\n")+2:]) + end, false, false},
		{
			"another model", chunked(strings.ReplaceAll(right, publicModel+`","choices`, localModel+`","choices`)) + end,
			false, false,
		},
		{"an error", "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nsorr", false, false},
		{"nothing", "", false, false},
		{"stamps", chunked(stamps) + end, true, true},
		{"half of the stamps", chunked(stamps[:len(stamps)/2]) + end, true, false},
		{"stamps without an end", chunked(stamps), true, false},
	} {
		target := serve(t, c.answer)
		client, err := target.dial(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if c.stamped {
			_, err = client.stamps(target.streamed(stamped).request, stamped.Tokens)
		} else {
			err = client.do(target.streamed(s))
		}
		client.Close()
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Ratios are computed within a round, because the machine's speed may differ between rounds.
func TestRatiosWithinRounds(t *testing.T) {
	r := &results{Options: fullRun(), Rounds: map[point][]figures{}}
	for speed := 1.0; speed < 3; speed++ {
		for name, f := range map[string]figures{
			direct: {Rate: 40000 * speed, P50: 0.1 + speed},
			plain:  {Rate: 10000 * speed, P50: 0.2 + speed, CPU: map[string]float64{nameUpstream: 30, nameCaddy: 100}},
			postern: {
				Rate: 8000 * speed, P50: 0.3 + speed,
				CPU: map[string]float64{nameUpstream: 30, nameGateway: 90, nameConnector: 70},
			},
		} {
			p := point{partRequests, name, 16}
			r.Rounds[p] = append(r.Rounds[p], f)
		}
	}
	var b strings.Builder
	r.writeRounds(&b, partRequests, "Requests", []int{16})
	want := "| 16 | postern | 12000 | 0.80 (0.80–0.80) | 1.800 | 0.000 | 0.200 (0.200–0.200) | 0.000 (0.000–0.000) | " +
		"2.00 (2.00–2.00) | – (–––) | 160.0 | 1.60 (1.60–1.60) | | 90.0 | 70.0 | 30.0 |"
	if report := strings.Join(strings.Fields(b.String()), " "); !strings.Contains(report, want) {
		t.Errorf("the report has no\n%s\nbut\n%s", want, b.String())
	}
}
