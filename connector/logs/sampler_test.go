package logs

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestSampler: in each second, one source has one line, and all sources have five.
func TestSampler(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var s Sampler[string]
	now := time.Unix(1_000_000_000, 0)
	log1 := func(source string) { s.Log(log, slog.LevelWarn, source, now, "refused") }
	lines := func() []string {
		defer out.Reset()
		return strings.Split(strings.TrimSpace(out.String()), "\n")
	}

	for range 1000 {
		log1("one")
	}
	if got := lines(); len(got) != 1 || strings.Contains(got[0], "left_out") {
		t.Errorf("of one source: %q", got)
	}
	for i := range 1000 {
		log1(fmt.Sprint(i % 250))
	}
	if got := lines(); len(got) != 4 || !strings.Contains(got[0], "left_out=999") {
		t.Errorf("of many sources: %q", got)
	}
	now = now.Add(lineInterval)
	log1("one")
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "left_out=996") {
		t.Errorf("a second later: %q", got)
	}
	now = now.Add(-time.Hour) // the clock is set back
	log1("one")
	if got := lines(); len(got) != 1 || got[0] == "" {
		t.Errorf("an hour before: %q", got)
	}
	s.Log(log, slog.LevelDebug, "another", now, "not enabled")
	log1("another")
	if got := lines(); len(got) != 1 || strings.Contains(got[0], "left_out") {
		t.Errorf("after a line that is not enabled: %q", got)
	}
}
