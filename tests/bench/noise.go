package main

import (
	"runtime"
	"time"

	"github.com/postern-dev/postern/tests/rig"
)

// noise watches what else the machine does: figures of a busy one mean little.
type noise struct {
	began time.Time
	at    ticks
	own   time.Duration
}

func startNoise() (noise, error) {
	at, err := machineTicks()
	return noise{began: time.Now(), at: at, own: ownTime()}, err
}

// shares returns how much of the machine others have used since, and how much
// the hypervisor has withheld, both in percent of all processors.
func (n noise) shares(r *rig.Rig) (foreign, stolen float64, err error) {
	now, err := machineTicks()
	if err != nil {
		return 0, 0, err
	}
	ours := ownTime() - n.own
	for _, p := range r.Processes() {
		t, err := used(p)
		if err != nil {
			return 0, 0, err
		}
		ours += t
	}
	whole := float64(time.Since(n.began)) * float64(runtime.NumCPU())
	foreign = max(0, 100*float64(now.Busy-n.at.Busy-ours)/whole)
	return foreign, 100 * float64(now.Stolen-n.at.Stolen) / whole, nil
}

// used returns the CPU time of a process, which may have ended.
func used(p *rig.Process) (time.Duration, error) {
	if state := p.State(); state != nil {
		return state.UserTime() + state.SystemTime(), nil
	}
	return cpuTime(p.Pid())
}
