package main

import (
	"bytes"
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

func TestReportOfAnEmptyRun(t *testing.T) {
	var b bytes.Buffer
	(&results{Options: quickRun()}).write(&b)
	for _, want := range []string{"not finished", "coarse"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, b.String())
		}
	}
}

// One load on both transports: the ratio is that of the rounds.
func TestTransports(t *testing.T) {
	r := madeUp()
	for round := range 2 {
		speed := float64(round + 1)
		at := point{webSocket, aimClients}
		r.Loads[at] = append(r.Loads[at], load{Rate: 4000 * speed, CPU: map[string]float64{nameGateway: 200, nameConnector: 120}})
	}
	r.Allocs[webSocket] = map[string]allocations{nameGateway: {Objects: 178, Bytes: 18000}}
	r.Idle = append(r.Idle, idle{System: webSocket, Tunnels: 1000, CPU: 3})
	r.Idle[1].After.Memory.RSS = 130000
	var b bytes.Buffer
	r.writeTransports(&b)
	got := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"| 16 clients: requests/s | 12000 | 6000 | 0.50 (0.50–0.50) |",
		"| 16 clients: CPU µs/request | 160 | 320 | 2.00 (2.00–2.00) |",
		"| allocations/request, gateway | 89.0 | 178.0 | 2.00 |",
		"| 1000 idle tunnels: KB each | 65.0 | 130.0 | 2.00 |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
	r.Options.Systems = []string{direct, postern}
	b.Reset()
	if r.writeTransports(&b); b.Len() > 0 {
		t.Errorf("one transport is compared with none:\n%s", b.String())
	}
}

func TestLossReport(t *testing.T) {
	r := madeUp()
	r.Loss = &lossy{Missing: "root"}
	var b bytes.Buffer
	if r.writeLoss(&b); !strings.Contains(b.String(), "Not measured: it needs root") {
		t.Errorf("without root: %s", b.String())
	}
	bulk := load{Rate: 10, P99: 2500}
	whole := lossRound{Requests: load{Rate: 300, P50: 60, P99: 110}, Prompts: bulk, Answers: bulk, Streams: stream{P50: 27, P99: 80}}
	r.Loss = &lossy{Results: []lossResult{
		{Way: wayQUIC, Percent: 1, Rounds: []lossRound{whole, whole}},
		{Way: wayWebSocket, Percent: 1, Congestion: [2]string{bbr, cubic}, Rounds: []lossRound{{Requests: whole.Requests, Broken: 3}, whole}},
		{Way: wayCubic, Percent: 1, Congestion: [2]string{cubic, cubic}, Rounds: []lossRound{{Broken: 3}, {Broken: 4}}},
	}}
	b.Reset()
	r.writeLoss(&b)
	got := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{
		"| 1.0 % | QUIC | | 300 | 60 | 110 | 2.62 | 2.50 | 2.62 | 2.50 | 27.0 | 80.0 | 0 |",
		"| 1.0 % | WebSocket | bbr / cubic | 300 | 60 | 110 | 2.62 | 2.50 | 2.62 | 2.50 | 27.0 | 80.0 | 3 |",
		"| cubic / cubic | – | – | – | – | – | – | – | – | – | 7 |",
		"asks the kernel for BBR",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the report lacks %q:\n%s", want, b.String())
		}
	}
	r.Loss.Results = r.Loss.Results[:1]
	if note := r.bbrNote(); !strings.Contains(note, "no BBR") {
		t.Errorf("without BBR: %s", note)
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	tab := &table{}
	tab.add("näme", "value")
	tab.add("a", "1")
	tab.write(&b, "Title")
	want := "### Title\n\n| näme | value |\n| ---- | ----: |\n| a    |     1 |\n\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
