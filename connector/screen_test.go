package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/doctor"
	"github.com/postern-dev/postern/connector/tty"
	"github.com/postern-dev/postern/connector/upstream"
	"github.com/postern-dev/postern/connector/version"
)

// terminal implements what the block needs of a terminal: it wraps lines, and knows two escape
// sequences and colors.
type terminal struct {
	width int
	rows  [][]rune
	row   int
	col   int
}

var escape = regexp.MustCompile(`^\x1b\[(\d*)([AJm])`)

func (term *terminal) Write(p []byte) (int, error) {
	for text := string(p); text != ""; {
		if m := escape.FindStringSubmatch(text); m != nil {
			text = text[len(m[0]):]
			switch m[2] {
			case "A":
				n, _ := strconv.Atoi(m[1])
				term.row = max(term.row-n, 0)
			case "J":
				term.rows = term.rows[:min(term.row, len(term.rows))]
			}
			continue
		}
		r := []rune(text)[0]
		text = text[len(string(r)):]
		switch r {
		case '\r':
			term.col = 0
		case '\n':
			term.row, term.col = term.row+1, 0
		default:
			if term.col == term.width {
				term.row, term.col = term.row+1, 0
			}
			for len(term.rows) <= term.row {
				term.rows = append(term.rows, nil)
			}
			for len(term.rows[term.row]) <= term.col {
				term.rows[term.row] = append(term.rows[term.row], ' ')
			}
			term.rows[term.row][term.col] = r
			term.col++
		}
	}
	return len(p), nil
}

func (term *terminal) String() string {
	var b strings.Builder
	for _, row := range term.rows {
		fmt.Fprintln(&b, strings.TrimRight(string(row), " "))
	}
	return b.String()
}

func testScreen(t *testing.T, term *terminal, height int) (*screen, *agent.Status) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
	status := &agent.Status{
		State: agent.StateOnline, Since: now, Server: "gw.example.com:7443",
		Tunnel:    &agent.TunnelStatus{Transport: "quic", RTT: 12 * time.Millisecond, GatewayVersion: "v1"},
		Upstreams: []agent.UpstreamStatus{{Name: "ollama", Address: "localhost:11434", State: upstream.StateReachable}},
		Recent: []upstream.Request{
			{
				At: now, Method: "POST", Path: "/v1/chat/completions", Upstream: "ollama", Status: 200, Result: "2xx",
				Duration: 3200 * time.Millisecond,
			},
			{
				At: now, Method: "POST", Path: "/v1/responses", Upstream: "ollama", Status: 500, Result: "5xx",
				Duration: 3200 * time.Millisecond,
			},
		},
	}
	return &screen{
		w: term, size: func() (int, int) { return term.width, height }, now: func() time.Time { return now },
		status: func() agent.Status { return *status },
	}, status
}

func TestScreen(t *testing.T) {
	term := &terminal{width: 80}
	s, status := testScreen(t, term, 24)
	s.update()
	head := "\nPostern connector " + version.Number() + "  Ctrl-C stops it\n"
	block := head + `state      online for 0s
gateway    gw.example.com:7443  version v1
tunnel     quic, round trip 12ms
upstream   ollama  localhost:11434  reachable
requests   0 running, 0 served
           12:00:00  200     3.2s  POST /v1/chat/completions  ollama
           12:00:00  500     3.2s  POST /v1/responses  ollama
`
	if got := term.String(); got != block {
		t.Errorf("at first:\n%s", got)
	}
	fmt.Fprintln(s, "a line of the log")
	if got := term.String(); got != "a line of the log\n"+block {
		t.Errorf("with a line:\n%s", got)
	}
	status.Served, status.Recent = 1, status.Recent[:1]
	s.update()
	block = strings.Replace(block, "0 served", "1 served", 1)
	block = block[:strings.Index(block, "           12:00:00  500")]
	if got := term.String(); got != "a line of the log\n"+block {
		t.Errorf("a change:\n%s", got)
	}
	status.Upstreams[0].OneModel = true
	s.update()
	if got := term.String(); !strings.Contains(got, "localhost:11434  reachable, one model at a time\n") {
		t.Errorf("one model at a time:\n%s", got)
	}
	term.rows = append(term.rows, []rune("untouched"))
	s.update() // without a change nothing is drawn
	if !strings.HasSuffix(term.String(), "untouched\n") {
		t.Error("it is drawn without a reason")
	}
	s.end()
	fmt.Fprintln(s, "after it")
	if got := term.String(); got != "a line of the log\nStopped; requests: 0 running, 1 served\nafter it\n" {
		t.Errorf("at the end:\n%s", got)
	}
}

func TestScreenNarrowAndLow(t *testing.T) {
	term := &terminal{width: 30}
	s, status := testScreen(t, term, 8)
	status.Server = "gw\x1b[2J.example.com:7443"
	s.update()
	lines := strings.Split(strings.TrimSuffix(term.String(), "\n"), "\n")
	for _, l := range lines {
		if len([]rune(l)) > 29 {
			t.Errorf("%q is too wide", l)
		}
	}
	if len(lines) != 7 || !strings.HasPrefix(lines[3], "gateway    gw[2J.example.com") ||
		!strings.HasSuffix(lines[3], "…") {
		t.Errorf("got\n%s", term)
	}
	// A terminal that becomes narrower wraps the lines of the block.
	wide := &terminal{width: 80}
	s, _ = testScreen(t, wide, 24)
	s.update()
	narrow := &terminal{width: 20}
	for _, row := range wide.rows {
		fmt.Fprintf(narrow, "%s\n", strings.TrimRight(string(row), " "))
	}
	s.w, s.size = narrow, func() (int, int) { return 20, 24 }
	s.end()
	if got := narrow.String(); got != "Stopped; requests: 0\n running, 0 served\n" {
		t.Errorf("narrower:\n%s", got)
	}
}

func TestScreenColours(t *testing.T) {
	flags := new(pflag.FlagSet)
	tty.Flag(flags)
	_ = flags.Set("color", "always")
	defer func() { _ = flags.Set("color", "auto") }()
	s := new(screen)
	if text, columns := s.render(line{{good, "online"}, {plain, " now"}}, 8); text != "\x1b[32monline\x1b[0m …" ||
		columns != 8 {
		t.Errorf("%q in %d columns", text, columns)
	}
	var out strings.Builder
	writeFinding(&out, doctor.Finding{Check: "udp", Result: doctor.ResultFailed, Detail: "no answer"})
	writeFinding(&out, doctor.Finding{Check: "pin", Result: doctor.ResultSkipped, Detail: "no answer"})
	if want := "\x1b[31mfailed  \x1b[0m udp: no answer\nskipped  pin: no answer\n"; out.String() != want {
		t.Errorf("doctor prints %q, want %q", out.String(), want)
	}
	if newScreen(new(output), func(string) string { return "" }) != nil {
		t.Error("a file is not a terminal")
	}
}
