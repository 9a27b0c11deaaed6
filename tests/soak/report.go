package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// A report is what a run found.
type report struct {
	o        options
	tally    *tally
	log      *faultLog
	history  *history
	complete bool
}

// failure returns why the run failed, if it did.
func (r *report) failure() error {
	findings, grows := r.tally.findings, r.growth()
	switch {
	case len(findings) > 0 && len(grows) > 0:
		return fmt.Errorf("%d findings without a cause, and growth: %s", len(findings), strings.Join(grows, "; "))
	case len(findings) > 0:
		return fmt.Errorf("%d findings without a cause", len(findings))
	case len(grows) > 0:
		return fmt.Errorf("growth: %s", strings.Join(grows, "; "))
	case !r.complete:
		return fmt.Errorf("the run was not finished")
	}
	return nil
}

// growth names what grows.
func (r *report) growth() []string {
	var grows []string
	samples := r.history.steadySamples()
	for _, f := range figures() {
		if trendOf(f, samples).grows {
			grows = append(grows, f.name)
		}
	}
	if r.complete {
		grows = append(grows, r.history.leaks(r.tally.total)...)
	}
	return grows
}

// write writes the report as Markdown.
func (r *report) write(w io.Writer) {
	fmt.Fprintf(w, "## Soak: %d connectors, %g requests/s, %v, seed %d\n\n", r.o.Connectors, r.o.Rate, r.o.Length, r.o.Seed)
	if !r.complete {
		fmt.Fprintf(w, "The run was **not finished**.\n\n")
	}
	r.writeRequests(w)
	r.writeFaults(w)
	r.writeFigures(w)
	r.writeFindings(w)
}

func (r *report) writeRequests(w io.Writer) {
	t := r.tally
	fmt.Fprint(w, "### Requests\n\n| dialect | whole | streamed |\n|---|--:|--:|\n")
	for _, d := range dialects {
		fmt.Fprintf(w, "| %s | %d | %d |\n", d, t.started[string(d)], t.started[string(d)+" streamed"])
	}
	fmt.Fprint(w, "\n| what became of them | |\n|---|--:|\n")
	fmt.Fprintf(w, "| right answers | %d |\n| left by the client, as it wanted | %d |\n", t.fine, t.left)
	for _, c := range slices.Sorted(maps.Keys(t.causes)) {
		fmt.Fprintf(w, "| failed; %s | %d |\n", c, t.causes[c])
	}
	fmt.Fprintf(w, "| **failed without a cause** | **%d** |\n| not sent, for too many were running | %d |\n\n", t.unknown, t.held)
}

func (r *report) writeFaults(w io.Writer) {
	fmt.Fprint(w, "### Faults\n\n| fault | times | requests that failed by it | all well again after, median | at most |\n|---|--:|--:|--:|--:|\n")
	for _, s := range r.log.summaries() {
		middle, most := "–", "–"
		if len(s.recovered) > 0 {
			middle, most = fmt.Sprintf("%.1f s", median(s.recovered)), fmt.Sprintf("%.1f s", slices.Max(s.recovered))
		}
		fmt.Fprintf(w, "| %s | %d | %d | %s | %s |\n", s.name, s.count, s.caused, middle, most)
	}
	fmt.Fprintf(w, "\nA fault's time includes that of the fault itself, and %v in which all must stay well.\n\n", settle)
}

func (r *report) writeFigures(w io.Writer) {
	h, samples := r.history, r.history.steadySamples()
	fmt.Fprint(w, "### Memory, goroutines, files\n\n| | at rest before | first sample | quarters of the steady part | | | | last sample | at rest after | slope per hour | grows |\n")
	fmt.Fprint(w, "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n")
	if len(h.samples) == 0 {
		return
	}
	for _, f := range figures() {
		t := trendOf(f, samples)
		verdict := map[bool]string{true: "**yes**", false: "no"}[t.grows]
		if !t.judged {
			verdict = "too short to tell"
		}
		fmt.Fprintf(w, "| %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %+.1f | %s |\n", f.name, f.of(h.before), f.of(h.samples[0]),
			t.quarters[0], t.quarters[1], t.quarters[2], t.quarters[3], f.of(h.samples[len(h.samples)-1]), f.of(h.after), t.slope, verdict)
	}
	mega := func(bytes int) float64 { return float64(bytes) / (1 << 20) }
	fmt.Fprintf(w, "\nLive heap at rest, before and after: gateway %.1f and %.1f MB, connectors in hosts %.1f and %.1f MB. The steady part has %d samples.\n",
		mega(h.heapBefore[partGateway]), mega(h.heapAfter[partGateway]), mega(h.heapBefore[partHosts]), mega(h.heapAfter[partHosts]), len(samples))
	for _, l := range h.leaks(r.tally.total) {
		fmt.Fprintf(w, "\n**%s**\n", l)
	}
	fmt.Fprintln(w)
}

func (r *report) writeFindings(w io.Writer) {
	findings := r.tally.findings
	fmt.Fprintf(w, "### Without a cause: %d\n\n", len(findings))
	for i, f := range findings {
		if i == maxFindings {
			fmt.Fprintf(w, "… and %d more.\n", len(findings)-i)
			return
		}
		fmt.Fprintf(w, "%d. %s %s\n", i+1, clock(f.at), f.story)
		for _, line := range r.log.around(f.began, f.at) {
			fmt.Fprintf(w, "   - %s\n", line)
		}
		for _, line := range f.log {
			fmt.Fprintf(w, "   - log: %s\n", line)
		}
	}
}
