package cli

import (
	"bytes"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

func TestUntil(t *testing.T) {
	now := time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)
	env := environment{now: func() time.Time { return now }}
	for ahead, want := range map[time.Duration]string{
		-time.Second: "now", 0: "now", time.Second: "in 1s", 14*time.Minute + 59*time.Second: "in 15m",
		15 * time.Minute: "in 15m",
		61 * time.Minute: "in 2h", 72 * time.Hour: "in 3d", math.MaxInt64: "in 106752d",
	} {
		if got := env.until(now.Add(ahead)); got != want {
			t.Errorf("%v: %q, want %q", ahead, got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	now := time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)
	env := environment{now: func() time.Time { return now }}
	for past, want := range map[time.Duration]string{
		-time.Second: "0s ago", 0: "0s ago", 59 * time.Second: "59s ago", time.Minute: "1m ago",
		59 * time.Minute: "59m ago", time.Hour: "1h ago", 47 * time.Hour: "47h ago", 48 * time.Hour: "2d ago",
	} {
		at := now.Add(-past)
		if got := env.ago(&at); got != want {
			t.Errorf("%v: %q, want %q", past, got, want)
		}
	}
	if got := env.ago(nil); got != "never" {
		t.Errorf("nil: %q", got)
	}
}

// onTerminal returns a run of a command on a terminal with so many columns; 0: on none.
func onTerminal(columns int) *invocation {
	return &invocation{
		Command: new(cobra.Command), widths: map[string]int{},
		env: environment{size: func(io.Writer) (int, int) { return columns, 0 }},
	}
}

// TestNarrowTables: on a terminal no line is wider than it, down to 80 columns. Columns are left out in their order,
// and then texts are cut. Names, states and numbers stay.
func TestNarrowTables(t *testing.T) {
	wide := [][]string{
		{"ID", "NAME", "STATE", "TRANSPORT", "REMOTE", "VERSION", "UPSTREAMS", "SINCE", "TOKEN"},
		{
			"con_06b3kz9v6dfx7fbv7wq7m5r2qm", "rack", "online", "quic", "192.0.2.7:4711", "v1.0.0",
			"ollama (12 models), vllm (down), llama-server (1 model)", "3h ago", "rotated 3h ago, the old one ends 2026-05-03",
		},
	}
	audit := [][]string{
		{"TIME", "BY", "OPERATION", "RECORD", "DETAILS", "FROM"},
		{
			"2026-11-26 17:56", "caddy gateway up", "connector.create", "lnk_06h1i0733prvpf66kai9m9o8f8",
			"connectors: con_06h1i072phvpnf3i9mr752dp64; kind: chat", "203.0.113.7",
		},
	}
	var out bytes.Buffer
	in := onTerminal(80)
	in.SetOut(&out)
	in.printTable(audit)
	want := "2026-11-26 17:56  caddy gateway up  connector.create  lnk_06h1i0733pr…  connec…\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("the audit log is\n%s", &out)
	}
	for columns, want := range map[int]string{
		0:   strings.Join(wide[0], " "),
		250: strings.Join(wide[0], " "),
		150: "ID NAME STATE TRANSPORT VERSION UPSTREAMS SINCE TOKEN",
		120: "ID NAME STATE UPSTREAMS SINCE TOKEN",
		80:  "NAME STATE UPSTREAMS SINCE",
	} {
		var out bytes.Buffer
		in := onTerminal(columns)
		in.SetOut(&out)
		in.printTable([][]string{slices.Clone(wide[0]), slices.Clone(wide[1])})
		lines := strings.Split(out.String(), "\n")
		if got := strings.Join(strings.Fields(lines[0]), " "); got != want {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
		for _, line := range lines {
			if utf8.RuneCountInString(line) >= columns && columns > 0 {
				t.Errorf("%d columns: the line has %d: %q", columns, utf8.RuneCountInString(line), line)
			}
		}
		if !strings.Contains(lines[1], "rack  online") || !strings.Contains(lines[1], "3h ago") {
			t.Errorf("%d columns: %q", columns, lines[1])
		}
	}
}

// A list that names its least columns leaves them out before it cuts a text, and keeps the others longer.
func TestLeastColumns(t *testing.T) {
	var out bytes.Buffer
	show := func(columns int, least string, rows ...[]string) string {
		out.Reset()
		in := onTerminal(columns)
		in.least = least
		in.SetOut(&out)
		in.printTable(rows)
		return out.String()
	}
	audit := [][]string{
		{"TIME (UTC)", "WHAT", "FROM"},
		{"2026-11-28 15:47:12", "admin endpoint created the key hr-scan-tool: scope *", "127.0.0.1"},
	}
	if got := show(80, "FROM", audit...); !strings.HasSuffix(got, "hr-scan-tool: scope *\n") {
		t.Errorf("the audit log is\n%s", got)
	}
	if got := show(100, "FROM", audit...); !strings.HasSuffix(got, "scope *  127.0.0.1\n") {
		t.Errorf("the wide audit log is\n%s", got)
	}
	keys := show(80, "ID, KEY, SCOPE",
		[]string{"ID", "NAME", "KEY", "SCOPE", "OWNER", "LAST USED", "LIMITS", "EXPIRES", "STATE"},
		[]string{
			"key_06b3kz9v6dfx7fbv7wq7m5r2qm", "ben-claude-code-on-the-new-laptop", "sk-svc-xSzE…ogfz", "qwen3*,gemma-3-12b",
			"ben", "12m ago", "60 requests per minute, 2000000 tokens per day", "in 20d", "active",
		})
	want := "ben-claude-code-on-t…  ben    12m ago    60 requests per minu…  in 20d   active\n"
	if !strings.HasSuffix(keys, want) {
		t.Errorf("the keys are\n%s", keys)
	}
}

// TestTableGoesOn: rows that follow have no header, and the columns of the header, also if they need more room.
func TestTableGoesOn(t *testing.T) {
	var out bytes.Buffer
	in := onTerminal(40)
	in.SetOut(&out)
	for _, detail := range []string{"short", strings.Repeat("long ", 20), "short"} {
		in.printTable([][]string{{"ID", "STATUS", "DETAIL"}, {"req_1", "ok 200", detail}})
	}
	want := "ID     STATUS  DETAIL\nreq_1  ok 200  short\nreq_1  ok 200  long long long long lon…\nreq_1  ok 200  short\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}
