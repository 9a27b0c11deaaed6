package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"time"
)

// options say how much happens, and for how long.
type options struct {
	Length     time.Duration
	Connectors int     // all of them
	Real       int     // those of them that are processes of their own
	Rate       float64 // requests a second
	Seed       uint64
	Bin        string // folder of the binaries; "" is the repository's bin
	Keep       string // where logs stay; "" is a folder that goes when all is well
}

// parseFlags reads the command line into options.
func parseFlags(args []string) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	minutes := flags.Float64("minutes", 30, "for how many `minutes` requests are sent and faults are made")
	flags.IntVar(&o.Connectors, "connectors", 500, "`number` of connectors")
	flags.IntVar(&o.Real, "real", 8, "`number` of them that are processes of their own, to be killed and frozen")
	flags.Float64Var(&o.Rate, "rps", 40, "requests a `second`; 40 leaves two slow cores some air")
	flags.Uint64Var(&o.Seed, "seed", 0, "`number` that decides about requests and faults; 0 takes another each time, and says which")
	flags.StringVar(&o.Bin, "bin", "", "`folder` of caddy and connector (default: bin of the repository)")
	flags.StringVar(&o.Keep, "keep", "", "keep the logs of all processes in this `folder`, which must not exist (default: a temporary one, kept after a failure)")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("%q is not an option", flags.Arg(0))
	}
	o.Length = time.Duration(*minutes * float64(time.Minute))
	if o.Seed == 0 {
		o.Seed = rand.Uint64()>>32 + 1 // short enough to be typed
	}
	return o, o.check()
}

// check refuses what cannot work.
func (o options) check() error {
	switch {
	case o.Length < 10*time.Second || o.Length > 48*time.Hour:
		return fmt.Errorf("-minutes: %v is not between 10s and 48h", o.Length)
	case o.Real < 2 || o.Real > 64:
		return fmt.Errorf("-real: %d is not between 2 and 64", o.Real)
	case o.Connectors < o.Real+4*hosts || o.Connectors > 5000:
		return fmt.Errorf("-connectors: %d is not between %d and 5000", o.Connectors, o.Real+4*hosts)
	case o.Rate < 0.1 || o.Rate > 1000:
		return fmt.Errorf("-rps: %v is not between 0.1 and 1000", o.Rate)
	}
	return nil
}

// The gateway is restarted and killed in the first part of the run only: what
// it holds is watched over the life that it has from then on.
func (o options) deaths() time.Duration { return o.Length * 2 / 5 }

// sampling is the time between two readings of memory and the like.
func (o options) sampling() time.Duration {
	return min(15*time.Second, max(time.Second, o.Length/60))
}

// printing is the time between two lines of progress.
func (o options) printing() time.Duration { return min(30*time.Second, o.Length/4) }

// random returns a generator of its own for each purpose, so that none depends
// on how often another was asked.
func (o options) random(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, purpose)) }
