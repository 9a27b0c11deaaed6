package fair

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestSampler: in each second a network has one line, and all together have five.
func TestSampler(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var s Sampler
	now := time.Unix(1_000_000_000, 0)
	say := func(host string) { s.Log(log, slog.LevelWarn, Parse(host), now, "refused", "remote", host) }
	lines := func() []string {
		defer out.Reset()
		return strings.Split(strings.TrimSpace(out.String()), "\n")
	}

	for i := range 1000 {
		say(fmt.Sprintf("192.0.2.%d", i%250))
	}
	if got := lines(); len(got) != 1 || strings.Contains(got[0], "left_out") {
		t.Errorf("of one network: %q", got)
	}
	for i := range 1000 {
		say(fmt.Sprintf("10.0.%d.1", i%250))
	}
	if got := lines(); len(got) != 4 || !strings.Contains(got[0], "left_out=999") {
		t.Errorf("of many networks: %q", got)
	}
	now = now.Add(lineInterval)
	say("192.0.2.1")
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "left_out=996") {
		t.Errorf("a second later: %q", got)
	}
	now = now.Add(-time.Hour) // the clock is set back
	say("192.0.2.1")
	if got := lines(); len(got) != 1 || got[0] == "" {
		t.Errorf("an hour before: %q", got)
	}
	s.Log(log, slog.LevelDebug, Parse("198.51.100.1"), now, "not enabled")
	say("198.51.100.1")
	if got := lines(); len(got) != 1 || strings.Contains(got[0], "left_out") {
		t.Errorf("after a line that is not enabled: %q", got)
	}
}
