// Command soak keeps a gateway and hundreds of connectors under load while
// random faults hit them, and finds what fails without a cause and what grows.
//
//	go run ./tests/soak -minutes 30
//
// It needs bin/caddy and bin/connector (./xcaddy.sh) and Linux, uses loopback
// only, and ends every process that it starts. It exits with 0 if all that
// failed has a cause among the faults and nothing grows, and with 1 otherwise.
// Reports go to standard output, what happens meanwhile to standard error.
//
// # What runs
//
// A real gateway; a few connectors as processes of their own and hundreds more
// in four processes, over QUIC, over the WebSocket, and over paths that are made
// bad; four scripted model servers. Clients send requests at random times at a
// given rate: chat, responses and messages, whole and streamed, text and tools.
// Each answer follows from its request and is compared whole. A few of the
// models die in their answer, fail or think for long; a few of the clients
// leave, pause, or stop reading.
//
// # What is done to it
//
// Lanes make one fault after the other, at the same time as the other lanes:
//
//	gateway        reload, SIGTERM and start, kill -9
//	configuration  reload
//	connectors     kill -9, freeze, hold up, restart, reload, rotate the token
//	hosts          freeze a quarter of all connectors
//	paths          lose, delay and stop packets, rebind
//	model servers  kill -9
//	management     move a deployment, create and revoke keys
//
// The gateway dies in the first two fifths of a run only. Its memory is watched
// over the life after that.
//
// With -edges 3, there are three edges with a store in etcd, requests go to any of them, and
// the first lane is another one:
//
//	edges          reload, SIGTERM and start, kill -9; kill etcd; the path between edges loses,
//	               delays and stops packets
//
// Another edge than the one that is hit excuses only that requests over it end, and the death
// of etcd excuses nothing.
//
// # What is a cause
//
// The log of faults knows what was in force for which connectors, from before a
// fault was made until all was seen to be well again for some seconds. Each kind
// of fault excuses certain failures, and some excuse none: a rebind, lost and
// late packets, a connector that is held up for less than a second, a deployment
// that moves. A reload excuses that a request finds its connection closed before
// an answer, and nothing that was running. A deployment with two connectors is
// offline with a cause only if both have one. Nothing excuses a wrong answer, a
// stream that ends as if it were whole, a request without an end, or one that
// reached a model twice. What does not come back after a fault is a finding, too,
// as is what still runs after the last client has gone.
//
// A machine with too much else to do loses tunnels, too. That counts as a cause
// when a small request to the gateway is late while some process waits for a
// processor all the time (/proc/pressure/cpu); it has a line of its own among
// the faults. A run that is to prove something should have none.
//
// # What is growth
//
// The last 45 % of a run count, in quarters: a figure grows if the median of the
// last quarter is above that of the first by more than a floor (20 MB of RSS,
// 100 goroutines, 40 open files) and a share (15 % of RSS, 8 % of the others),
// and that of the third by more than half of that. Besides, goroutines, open
// files and what the heaps hold are compared between rest after a request of
// each kind for each deployment, and rest after the last. A run of less than some
// fifteen minutes is too short for the first, not for the second.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/tests/agents"
	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// The roles of the processes of a run.
const (
	roleUpstream = "upstream" // a scripted model server
	roleHost     = "host"     // many connectors in one process
)

// addressVariable names the environment variable with the address of an upstream.
const addressVariable = "POSTERN_SOAK_ADDRESS"

func program() command.Command {
	return command.Command{Name: "soak", Roles: map[string]command.Role{
		roleUpstream: func(ctx context.Context, _ io.Reader, out io.Writer) error {
			return play.Serve(ctx, os.Getenv(addressVariable), out)
		},
		roleHost: func(ctx context.Context, in io.Reader, out io.Writer) error {
			logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
			// A connector that ends is to end soon: what it drains is counted.
			return agents.Run(ctx, in, out, func(n int) agent.Options {
				return agent.Options{Logger: logger.With("number", n), DrainTimeout: 10 * time.Second}
			})
		},
	}}
}

func main() { program().Run(execute) }

// execute runs what the command line asks for, and prints the report.
func execute(ctx context.Context, args []string) error {
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	r, err := soak(ctx, o)
	if r != nil {
		r.write(os.Stdout)
	}
	if err == nil {
		err = r.failure()
	}
	return err
}

// options are how much happens, and for how long.
type options struct {
	Length     time.Duration
	Connectors int     // all of them
	Real       int     // those of them that are processes of their own
	Edges      int     // gateways; from two on, they are a cluster
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
	flags.IntVar(&o.Edges, "edges", 1,
		"`number` of gateways; from two on, they share a store in etcd, and each connector has two tunnels")
	flags.Float64Var(&o.Rate, "rps", 40, "requests a `second`; 40 leaves two slow cores some air")
	flags.Uint64Var(&o.Seed, "seed", 0,
		"`number` that decides about requests and faults; 0 takes another each time, and prints it")
	flags.StringVar(&o.Bin, "bin", "", "`folder` of caddy and connector (default: bin of the repository)")
	flags.StringVar(&o.Keep, "keep", "",
		"keep the logs of all processes in this `folder`, which must not exist (default: a temporary one, kept after a "+
			"failure)")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	o.Length = time.Duration(*minutes * float64(time.Minute))
	if o.Seed == 0 {
		o.Seed = rand.Uint64()>>32 + 1 // short enough to be typed
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q is not an option", flags.Arg(0))
	case o.Length < 10*time.Second || o.Length > 48*time.Hour:
		return o, fmt.Errorf("-minutes: %v is not between 10s and 48h", o.Length)
	case o.Real < 2 || o.Real > 64:
		return o, fmt.Errorf("-real: %d is not between 2 and 64", o.Real)
	case o.Connectors < o.Real+4*hosts || o.Connectors > 5000:
		return o, fmt.Errorf("-connectors: %d is not between %d and 5000", o.Connectors, o.Real+4*hosts)
	case o.Edges < 1 || o.Edges > 9:
		return o, fmt.Errorf("-edges: %d is not between 1 and 9", o.Edges)
	case o.Rate < 0.1 || o.Rate > 1000:
		return o, fmt.Errorf("-rps: %v is not between 0.1 and 1000", o.Rate)
	}
	return o, nil
}

// random returns a generator of its own for each purpose, so that none depends
// on how often another was asked.
func (o options) random(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, purpose)) }

// one picks one of several.
func one[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// upTo returns a random time below limit.
func upTo(random *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(random.Int64N(limit.Milliseconds())) * time.Millisecond
}
