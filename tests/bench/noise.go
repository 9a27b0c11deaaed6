package main

import (
	"fmt"
	"runtime"
	"time"
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
func (n noise) shares(f *fleet) (foreign, stolen float64, err error) {
	now, err := machineTicks()
	if err != nil {
		return 0, 0, err
	}
	ours := ownTime() - n.own
	for _, c := range f.children {
		t, err := c.used()
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
func (c *child) used() (time.Duration, error) {
	select {
	case <-c.done:
		state := c.cmd.ProcessState
		if state == nil {
			return 0, fmt.Errorf("%s has ended without a state", c.name)
		}
		return state.UserTime() + state.SystemTime(), nil
	default:
		return cpuTime(c.pid())
	}
}
