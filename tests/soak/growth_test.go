package main

import (
	"math/rand/v2"
	"testing"
	"time"
)

// samples is a figure over a time, with noise.
func samples(n int, over time.Duration, of func(share float64) float64) []sample {
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]sample, n)
	for i := range all {
		share := float64(i) / float64(n-1)
		all[i].at = at(0).Add(time.Duration(share * float64(over)))
		all[i].parts[partGateway].rss = int(1024 * (of(share) + 20*random.Float64()))
	}
	return all
}

func TestTrend(t *testing.T) {
	rss := figures()[0]
	for name, c := range map[string]struct {
		over          time.Duration
		of            func(float64) float64
		judged, grows bool
	}{
		"level":      {15 * time.Minute, func(float64) float64 { return 200 }, true, false},
		"falls":      {15 * time.Minute, func(s float64) float64 { return 300 - 100*s }, true, false},
		"grows":      {15 * time.Minute, func(s float64) float64 { return 200 + 60*s }, true, true},
		"a little":   {15 * time.Minute, func(s float64) float64 { return 200 + 20*s }, true, false},
		"too short":  {2 * time.Minute, func(s float64) float64 { return 200 + 60*s }, false, false},
		"a moment":   {15 * time.Minute, func(s float64) float64 { return 200 + map[bool]float64{true: 500}[s > 0.9 && s < 0.97] }, true, false},
		"from small": {15 * time.Minute, func(s float64) float64 { return 20 + 15*s }, true, false},
	} {
		got := trendOf(rss, samples(60, c.over, c.of))
		if got.judged != c.judged || got.grows != c.grows {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := trendOf(rss, samples(3, time.Hour, func(float64) float64 { return 1 })); got.judged {
		t.Error("three samples are enough")
	}
}

func TestLeaks(t *testing.T) {
	h := &history{}
	h.before.parts[partGateway] = use{rss: 1, goroutines: 1500, files: 80}
	h.after = h.before
	h.heapBefore[partGateway], h.heapAfter[partGateway] = 20<<20, 40<<20
	if found := h.leaks(1000); len(found) != 0 {
		t.Errorf("what is as before leaks: %q", found)
	}
	h.after.parts[partGateway].goroutines += 200
	h.after.parts[partHosts].files += 50
	h.heapAfter[partGateway] = 80 << 20
	if found := h.leaks(1000); len(found) != 3 {
		t.Errorf("found %q", found)
	}
	h.after.webSocket = 30 // explains goroutines and files
	if found := h.leaks(1000); len(found) != 1 {
		t.Errorf("found %q", found)
	}
}

func TestReportFails(t *testing.T) {
	fresh := func() *report {
		l := &faultLog{}
		return &report{complete: true, log: l, tally: newTally(l, nil), history: &history{}}
	}
	if err := fresh().failure(); err != nil {
		t.Error(err)
	}
	found := fresh()
	found.tally.findings = []finding{{story: "s"}}
	short := fresh()
	short.complete = false
	grown := fresh()
	grown.history.ended = at(3600)
	grown.history.samples = samples(60, 15*time.Minute, func(s float64) float64 { return 200 + 100*s })
	for name, r := range map[string]*report{"a finding": found, "a broken run": short, "growth": grown} {
		if r.failure() == nil {
			t.Errorf("%s is no failure", name)
		}
	}
}

func TestPressure(t *testing.T) {
	if got := parsePressure("some avg10=98.66 avg60=98.32 avg300=98.22 total=7442458199\nfull avg10=0.00"); got != 98.66 {
		t.Errorf("pressure %v", got)
	}
	if got := parsePressure(""); got != 0 {
		t.Errorf("pressure of nothing: %v", got)
	}
}
