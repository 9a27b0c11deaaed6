package observed

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// pace is how fast the answers of a route are.
type pace struct {
	usual map[level][]float64 // the last 16 speeds, in tokens per second
	under uint                // a bit for each of the last ten answers that could be compared: it was slow
	since time.Time           // of the first slow one, of those that came one after another
	slow  health.Finding      // the zero value if the route is not slow
}

// level is where speeds compare: a day, and powers of two of the requests at the same time and of the prompt.
type level struct{ day, running, long int }

// Decoded records how fast the tokens of an answer came after the first one. A server that sends them at once shows
// nothing. Slow answers do not change what is usual, but when a route is slow for a week, that is usual.
func (a *Attempt) Decoded(speed float64, tokens, prompt int64) {
	if a.route == nil || tokens <= 20 || speed <= 0 || float64(tokens) < speed/2 {
		return
	}
	const week, day = 7, 24 * time.Hour
	at := level{0, min(4, bits.Len(uint(a.running/2-1))), min(2, bits.Len64(uint64(prompt)>>14))}
	a.table.update(a.route.name, func(o *route, _ tunnel.DeploymentRoute, now time.Time) {
		p := &o.pace
		if p.usual == nil || !p.slow.Since.IsZero() && now.Sub(p.slow.Since) >= week*day {
			*p = pace{usual: make(map[level][]float64)}
		}
		at.day = int(cmp.Or(p.slow.Since, now).Unix() / int64(day.Seconds()))
		maps.DeleteFunc(p.usual, func(l level, _ []float64) bool { return at.day-l.day >= week })
		usual := make([]float64, 0, week*16)
		for i := range week {
			usual = append(usual, p.usual[level{at.day - i, at.running, at.long}]...)
		}
		if slices.Sort(usual); len(usual) >= 10 {
			p.compare(speed, usual[len(usual)/2], now)
		}
		if last := p.usual[at]; p.slow.State == "" && p.under&1 == 0 {
			p.usual[at] = append(last[max(0, len(last)-15):], speed)
		}
	})
}

// compare compares an answer with the usual speed. The median of ten is slow if six are.
func (p *pace) compare(speed, usual float64, now time.Time) {
	if p.under&1 == 0 {
		p.since = now
	}
	slow, part := p.slow.State != "", 3.
	if slow {
		part = 2
	}
	if p.under = p.under << 1 & (1<<10 - 1); part*speed < usual {
		p.under |= 1
	}
	switch n := bits.OnesCount(p.under); {
	case slow && n < 5:
		p.slow, p.under = health.Finding{}, 0
	case !slow && n > 5:
		p.slow = health.Finding{State: health.Slow, Speed: speed, Usual: usual, Since: p.since}
	}
}
