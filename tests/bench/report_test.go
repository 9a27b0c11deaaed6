package main

import (
	"strings"
	"testing"
	"time"
)

// madeUp is a run of two rounds with round figures.
func madeUp() *results {
	o := fullRun()
	o.Rounds, o.Clients, o.Streams = 2, []int{aimClients}, []int{aimStreams}
	r := &results{
		Options: o, Began: time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC), Took: time.Minute, Complete: true,
		Loads: map[point][]load{}, Streams: map[point][]stream{},
		Answers: map[string]answers{postern: {Total: 100, Took: time.Second}},
		Allocs:  map[string]map[string]allocations{postern: {nameGateway: {Objects: 89, Bytes: 9000}}},
		Idle:    []idle{{System: postern, Tunnels: 1000, DialIn: time.Second}},
	}
	r.Idle[0].Before.Memory, r.Idle[0].After.Memory = memory{RSS: 50000, PSS: 40000}, memory{RSS: 115000, PSS: 104000}
	for round := range 2 {
		speed := float64(round + 1) // the machine's
		r.Loads[point{direct, aimClients}] = append(r.Loads[point{direct, aimClients}], load{Rate: 40000 * speed})
		r.Loads[point{plain, aimClients}] = append(r.Loads[point{plain, aimClients}],
			load{Rate: 10000 * speed, CPU: map[string]float64{nameUpstream: 30, nameCaddy: 100}})
		r.Loads[point{postern, aimClients}] = append(r.Loads[point{postern, aimClients}],
			load{Rate: 8000 * speed, CPU: map[string]float64{nameUpstream: 30, nameGateway: 90, nameConnector: 70}})
		for i, s := range o.Systems {
			r.Streams[point{s, aimStreams}] = append(r.Streams[point{s, aimStreams}],
				stream{P50: 0.1 + 0.1*float64(i), P99: 0.5 + 0.5*float64(i) + speed})
		}
	}
	return r
}

func TestAims(t *testing.T) {
	var got []string
	for _, a := range madeUp().aims() {
		if !a.Met {
			t.Errorf("%s: not met with %s", a.What, a.Measured)
		}
		got = append(got, a.Measured)
	}
	// The rounds differ by a factor of two, the ratios within them do not.
	want := "0.80 (0.80–0.80); 160 (160–160); 0.200 (0.200–0.200); 1.000 (1.000–1.000); 0 of 100; 65.0"
	if all := strings.Join(got, "; "); all != want {
		t.Errorf("measured %s\nwant     %s", all, want)
	}
}

func TestMissedAims(t *testing.T) {
	r := madeUp()
	for i := range r.Loads[point{postern, aimClients}] {
		l := &r.Loads[point{postern, aimClients}][i]
		l.Rate /= 2
		l.CPU[nameConnector] = 81
	}
	for i := range r.Streams[point{postern, aimStreams}] {
		s := &r.Streams[point{postern, aimStreams}][i]
		s.P50 += 0.2
		s.P99 += 0.2
	}
	r.Answers[postern] = answers{Total: 100, Cut: 1, Took: time.Second, Example: "answer 7"}
	r.Idle[0].After.Memory.RSS += 5000
	for _, a := range r.aims() {
		if a.Met {
			t.Errorf("%s: met with %s", a.What, a.Measured)
		}
	}
	if err := r.failure(); err == nil || !strings.Contains(err.Error(), "1 of 100") || !strings.Contains(err.Error(), "answer 7") {
		t.Errorf("the failure is %v", err)
	}
}
