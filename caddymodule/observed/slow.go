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
	usual map[speedClass][]float64 // tokens per second, of the first answers of each of the last seven days
	last  []health.Finding         // the last ten answers that could be compared
	slow  health.Finding           // the zero value if the route is not slow
}

// speedClass is a class of comparable speeds: a day, and a power of two of the requests at the same time.
type speedClass struct{ day, running int }

// Decoded records how fast the tokens of an answer came after the first one. An answer that came at once is ignored.
// Six slow answers of the last ten make the route slow, fewer than five end that. Speeds count as usual for a week,
// but not those of a slow route.
func (a *Attempt) Decoded(speed float64, tokens int64) {
	if a.route == nil || tokens <= 20 || speed <= 0 || float64(tokens) < speed/2 {
		return
	}
	a.table.update(a.route.id, func(o *route, _ tunnel.DeploymentRoute, now time.Time) {
		p, at := &o.pace, speedClass{int(now.Unix() / (24 * 60 * 60)), bits.Len(uint(a.runningSum/2 - 1))}
		maps.DeleteFunc(p.usual, func(l speedClass, _ []float64) bool { return at.day-l.day >= 7 })
		if len(p.usual) == 0 {
			*p = pace{usual: make(map[speedClass][]float64)}
		}
		var usual []float64
		for l, speeds := range p.usual {
			if l.running == at.running {
				usual = append(usual, speeds...)
			}
		}
		if slices.Sort(usual); len(usual) >= 10 {
			found := health.Finding{State: health.Slow, Speed: speed, Usual: usual[len(usual)/2], Since: now}
			p.last = append(p.last[max(0, len(p.last)-9):], found)
		}
		slow := slices.DeleteFunc(slices.Clone(p.last), func(f health.Finding) bool { return 3*f.Speed >= f.Usual })
		switch today := p.usual[at]; {
		case p.slow.State != "" && len(slow) < 5:
			p.slow, p.last = health.Finding{}, nil
		case p.slow.State == "" && len(slow) > 5:
			p.slow = slow[0]
		case p.slow.State == "" && len(today) < 16:
			p.usual[at] = append(today, speed)
		}
	})
}
