package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// A history is what a run has measured.
type history struct {
	began      time.Time
	steady     time.Time // from when on growth would show
	ended      time.Time
	samples    []sample
	before     sample     // at rest, before the first request
	after      sample     // at rest, after the last one
	heapBefore [parts]int // live heaps at rest, bytes
	heapAfter  [parts]int
}

// A figure is one of those that must not grow.
type figure struct {
	name string
	of   func(sample) float64
	// From one quarter to another it may differ by the floor, whatever its size,
	// and by the share of itself.
	floor, share float64
}

func figures() []figure {
	rss := func(part int) func(sample) float64 {
		return func(m sample) float64 { return float64(m.parts[part].rss) / 1024 }
	}
	goroutines := func(part int) func(sample) float64 {
		return func(m sample) float64 { return float64(m.parts[part].goroutines) }
	}
	files := func(part int) func(sample) float64 {
		return func(m sample) float64 { return float64(m.parts[part].files) }
	}
	// What a process has of memory depends on when it collects its garbage; what
	// it needs of that is compared at rest.
	return []figure{
		{"gateway, RSS in MB", rss(partGateway), 20, 0.15},
		{"gateway, goroutines", goroutines(partGateway), 100, 0.08},
		{"gateway, open files", files(partGateway), 40, 0.08},
		{"connectors in hosts, RSS in MB", rss(partHosts), 20, 0.15},
		{"connectors in hosts, goroutines", goroutines(partHosts), 100, 0.08},
		{"connectors in hosts, open files", files(partHosts), 40, 0.08},
	}
}

// A trend is how a figure went over the steady part of a run.
type trend struct {
	quarters [4]float64 // medians
	slope    float64    // per hour
	judged   bool       // the part was long enough
	grows    bool
}

// minSteady is how long the steady part must be for a verdict.
const minSteady = 5 * time.Minute

// trendOf applies the rule: a figure grows if the last quarter's median is
// above the first one's by more than the figure's floor and share, and
// the slope (the median of those between any two samples) says as much for the
// time between the middles of the two quarters.
func trendOf(f figure, samples []sample) trend {
	var t trend
	if len(samples) < 8 {
		return t
	}
	for q := range t.quarters {
		var values []float64
		for _, m := range samples[len(samples)*q/4 : len(samples)*(q+1)/4] {
			values = append(values, f.of(m))
		}
		t.quarters[q] = median(values)
	}
	var slopes []float64
	for i, a := range samples {
		for _, b := range samples[i+1:] {
			slopes = append(slopes, (f.of(b)-f.of(a))/b.at.Sub(a.at).Hours())
		}
	}
	t.slope = median(slopes)
	length := samples[len(samples)-1].at.Sub(samples[0].at)
	t.judged = length >= minSteady
	limit := max(f.floor, f.share*t.quarters[0])
	t.grows = t.judged && t.quarters[3]-t.quarters[0] > limit && t.slope*length.Hours()*3/4 > limit
	return t
}

// median returns the middle value; NaN for none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// steadySamples are those of the steady part.
func (h *history) steadySamples() []sample {
	var some []sample
	for _, m := range h.samples {
		if !m.at.Before(h.steady) && !m.at.After(h.ended) {
			some = append(some, m)
		}
	}
	return some
}

// leaks compares the two samples at rest, with the same connectors online: for
// each request that left something behind there would be more.
func (h *history) leaks(requests int) []string {
	var found []string
	compare := func(what string, before, after, allowed float64) {
		if after-before > allowed {
			found = append(found, fmt.Sprintf("%s at rest: %.0f before the first of %d requests, %.0f after the last; %.0f more would pass",
				what, before, requests, after, allowed))
		}
	}
	// A tunnel by WebSocket has a few goroutines more than one by QUIC, and a
	// connector that has lost UDP uses it for a while.
	moved := float64(max(0, h.after.webSocket-h.before.webSocket))
	for _, p := range []int{partGateway, partHosts} {
		a, b := h.before.parts[p], h.after.parts[p]
		compare(partNames[p]+", goroutines", float64(a.goroutines), float64(b.goroutines), 100+0.05*float64(a.goroutines)+8*moved)
		compare(partNames[p]+", open files", float64(a.files), float64(b.files), 40+0.05*float64(a.files)+2*moved)
	}
	const mega = 1 << 20
	for p, heap := range h.heapBefore {
		// What is made once, and what the gateway keeps by design: the vocabulary
		// of a tokenizer, responses, token counts, activity by day.
		compare(partNames[p]+", live heap in MB", float64(heap)/mega, float64(h.heapAfter[p])/mega, 24+0.25*float64(heap)/mega)
	}
	return found
}
