package observed

import (
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// pace is how fast the answers of a route come.
type pace struct {
	usual map[level][]float64 // tokens per second, of the first answers of each of the last seven days
	last  []compared          // the last ten answers that could be compared
	slow  health.Finding      // the zero value if the route is not slow
}

// level is where speeds compare: a day, and a power of two of the requests at the same time.
type level struct{ day, running int }

// compared is the speed of an answer, as a part of what is usual.
type compared struct {
	part float64
	at   time.Time
}

// Decoded records how fast the tokens of an answer came after the first one. A server that sends them at once shows
// nothing. Slow answers do not change what is usual, but when a route is slow for a week, that is usual.
func (a *Attempt) Decoded(speed float64, tokens int64) {
	if a.route == nil || tokens <= 20 || speed <= 0 || float64(tokens) < speed/2 {
		return
	}
	a.table.update(a.route.name, func(o *route, _ tunnel.DeploymentRoute, now time.Time) {
		p, at := &o.pace, level{int(now.Unix() / (24 * 60 * 60)), bits.Len(uint(a.running/2 - 1))}
		maps.DeleteFunc(p.usual, func(l level, _ []float64) bool { return at.day-l.day >= 7 })
		if len(p.usual) == 0 {
			*p = pace{usual: make(map[level][]float64)}
		}
		var usual []float64
		for l, speeds := range p.usual {
			if l.running == at.running {
				usual = append(usual, speeds...)
			}
		}
		if slices.Sort(usual); len(usual) >= 10 && p.compare(speed, usual[len(usual)/2], now) {
			return
		}
		if n := len(p.usual[at]); n < 16 && p.slow.State == "" {
			p.usual[at] = append(p.usual[at], speed)
		}
	})
}

// compare compares an answer with the usual speed, and reports whether it is slow. The median of ten is slow if six are.
func (p *pace) compare(speed, usual float64, now time.Time) bool {
	p.last = append(p.last[max(0, len(p.last)-9):], compared{speed / usual, now})
	limit := 1. / 3
	if p.slow.State != "" {
		limit = 1. / 2
	}
	slow := slices.DeleteFunc(slices.Clone(p.last), func(c compared) bool { return c.part >= limit })
	switch {
	case p.slow.State == "" && len(slow) > 5:
		p.slow = health.Finding{State: health.Slow, Speed: speed, Usual: usual, Since: slow[0].at}
	case p.slow.State != "" && len(slow) < 5:
		p.slow, p.last = health.Finding{}, nil
	}
	return speed/usual < limit
}
