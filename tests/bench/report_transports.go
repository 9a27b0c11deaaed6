package main

import (
	"fmt"
	"io"
	"slices"
)

// writeTransports prints what a tunnel over a WebSocket costs beside one over
// QUIC. Ratios and differences are those within a round.
func (r *results) writeTransports(w io.Writer) {
	if !r.Options.has(postern) || !r.Options.has(webSocket) {
		return
	}
	t := &table{}
	t.add("", "QUIC", "WebSocket", "WebSocket / QUIC")
	for _, n := range r.Options.Clients {
		for _, of := range []struct {
			what     string
			figure   func(load) float64
			decimals int
		}{{"requests/s", rateOf, 0}, {"p50 ms", loadP50, 3}, {"p99 ms", loadP99, 2}, {"CPU µs/request", loadCPU, 0}} {
			t.compare(fmt.Sprintf("%d clients: %s", n, of.what), of.decimals, r.loads(postern, n, of.figure), r.loads(webSocket, n, of.figure))
		}
	}
	for _, n := range r.Options.Streams {
		for _, of := range []struct {
			what     string
			figure   func(stream) float64
			decimals int
		}{{"p50 ms of an event", streamP50, 3}, {"p99 ms of an event", streamP99, 3}, {"CPU µs/event", streamCPU, 1}} {
			t.compare(fmt.Sprintf("%d streams: %s", n, of.what), of.decimals, r.streams(postern, n, of.figure), r.streams(webSocket, n, of.figure))
		}
	}
	for _, name := range []string{nameGateway, nameConnector} {
		over, beside := r.Allocs[postern][name], r.Allocs[webSocket][name]
		if over.Objects > 0 && beside.Objects > 0 {
			t.compare("allocations/request, "+name, 1, []float64{over.Objects}, []float64{beside.Objects})
			t.compare("bytes allocated/request, "+name, 0, []float64{over.Bytes}, []float64{beside.Bytes})
		}
	}
	for _, over := range r.Idle {
		for _, beside := range r.Idle {
			if over.System != postern || beside.System != webSocket || over.Tunnels != beside.Tunnels {
				continue
			}
			what := fmt.Sprintf("%d idle tunnels: ", over.Tunnels)
			t.compare(what+"KB each", 1, []float64{over.rss()}, []float64{beside.rss()})
			t.compare(what+"goroutines each", 1, []float64{over.goroutines()}, []float64{beside.goroutines()})
			t.compare(what+"% of a core", 1, []float64{over.CPU}, []float64{beside.CPU})
		}
	}
	if len(t.rows) > 1 {
		t.write(w, "Transports, the same load on both")
	}
}

// compare adds a row of two figures and their ratio, if there are any.
func (t *table) compare(what string, decimals int, over, beside []float64) {
	if len(over) == 0 || len(beside) == 0 {
		return
	}
	ratios := pairwise(beside, over, ratio)
	text := figure(middle(ratios), 2)
	if len(ratios) > 1 {
		text = ranged(spreadOf(ratios), 2)
	}
	t.add(what, figure(middle(over), decimals), figure(middle(beside), decimals), text)
}

// writeLoss prints what tunnels did on a lossy line.
func (r *results) writeLoss(w io.Writer) {
	switch {
	case r.Loss == nil:
		return
	case r.Loss.Missing != "":
		fmt.Fprintf(w, "### A line that loses packets\n\nNot measured: it needs %s.\n\n", r.Loss.Missing)
		return
	}
	t := &table{}
	t.add("loss", "tunnel", "TCP, connector / gateway", "requests/s", "p50 ms", "p99 ms", "prompts MB/s", "p99 s", "answers MB/s", "p99 s",
		"event p50 ms", "event p99 ms", "broken off")
	for _, l := range r.Loss.Results {
		broken := 0
		for _, round := range l.Rounds {
			broken += round.Broken
		}
		of := func(f func(lossRound) float64, decimals int) string {
			values := slices.DeleteFunc(each(l.Rounds, f), func(v float64) bool { return v == 0 }) // of what came to no end
			return figure(middle(values), decimals)
		}
		congestion := ""
		if l.Congestion[0] != "" {
			congestion = l.Congestion[0] + " / " + l.Congestion[1]
		}
		t.add(figure(l.Percent, 1)+" %", l.Way, congestion,
			of(func(l lossRound) float64 { return l.Requests.Rate }, 0),
			of(func(l lossRound) float64 { return l.Requests.P50 }, 0),
			of(func(l lossRound) float64 { return l.Requests.P99 }, 0),
			of(func(l lossRound) float64 { return megabytes(l.Prompts) }, 2),
			of(func(l lossRound) float64 { return l.Prompts.P99 / 1000 }, 2),
			of(func(l lossRound) float64 { return megabytes(l.Answers) }, 2),
			of(func(l lossRound) float64 { return l.Answers.P99 / 1000 }, 2),
			of(func(l lossRound) float64 { return l.Streams.P50 }, 1),
			of(func(l lossRound) float64 { return l.Streams.P99 }, 1),
			fmt.Sprint(broken))
	}
	t.write(w, fmt.Sprintf("A line of %v between gateway and connector that loses packets", r.Options.RTT))
	fmt.Fprintf(w, "%d rounds. Requests: %d clients, 1 KB. Prompts and streamed answers: %d at a time, of %d KiB each. "+
		"Events: %d streams of %.0f a second; the line alone takes %v of their age. "+
		"Broken off: measurements that were begun again because the tunnel was lost. ",
		r.Options.LossRounds, lossClients, lossBulk, bulkBytes>>10, lossStreams, 1/r.Options.Pace.Seconds(), r.Options.RTT/2)
	fmt.Fprint(w, r.bbrNote()+"\n\n")
}

// bbrNote says whether TCP's BBR was there to be used.
func (r *results) bbrNote() string {
	for _, l := range r.Loss.Results {
		if l.Congestion[0] == bbr {
			return "A connector asks the kernel for BBR; the last row of each line is without."
		}
	}
	return "This kernel has no BBR: over a WebSocket, a connector would use it."
}
