package main

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/rig/lab"
)

// labMissing returns what a lossy line needs and this machine has not.
func labMissing() error { return lab.Missing() }

// isolate gives a process a network of its own.
func isolate(cmd *exec.Cmd) { lab.Isolate(cmd) }

// measureLoss takes each way over each line. It must run in a network of its
// own.
func measureLoss(ctx context.Context, processes *rig.Rig, o options) ([]lossResult, error) {
	l, err := lab.New()
	if err != nil {
		return nil, fmt.Errorf("making a network: %w", err)
	}
	defer l.Close()
	// The tunnels begin on a line with its delay: QUIC takes what it has seen as
	// the least round trip for good, and a longer one for a queue.
	l.WAN.Set(lab.Conditions{Delay: o.RTT / 2})
	b, err := newBuilder(processes, place{gateway: l.GatewayAddress, home: l.Home.Do})
	if err != nil {
		return nil, err
	}
	ways, err := b.ways(ctx, o, l)
	if err != nil {
		return nil, err
	}
	var results []lossResult
	for _, percent := range o.Loss {
		for _, w := range ways {
			results = append(results, lossResult{Way: w.name, Percent: percent, Congestion: w.congestion})
		}
	}
	for round := range o.LossRounds {
		for i, percent := range o.Loss {
			l.WAN.Set(lab.Conditions{Delay: o.RTT / 2, Loss: percent / 100})
			line := results[i*len(ways) : (i+1)*len(ways)]
			for j := range ways {
				j = (j + round + i) % len(ways) // they take turns
				command.Progress("round %d of %d, a line that loses %v %%: %s", round+1, o.LossRounds, percent, ways[j].name)
				measured, err := ways[j].measureWay(ctx, o)
				if err != nil {
					return nil, fmt.Errorf("%s on a line that loses %v %%: %w", ways[j].name, percent, err)
				}
				line[j].Rounds = append(line[j].Rounds, measured)
			}
		}
	}
	return results, nil
}
