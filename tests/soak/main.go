// Command soak keeps a gateway and hundreds of connectors under load and causes random faults. It finds failures
// without a known cause, and growth of memory, goroutines and files.
//
//	go run ./tests/soak -minutes 30
//
// It needs Linux, bin/caddy and bin/connector (./xcaddy.sh). It uses loopback only, and ends every process that
// it starts. It exits with 0 if a fault explains each failure and nothing grows, and with 1 otherwise. It
// writes its report to standard output and its progress to standard error.
//
// # Load
//
// A run has a real gateway and four scripted model servers. A few connectors run in their own processes, and
// hundreds more in four processes. They use QUIC, the WebSocket, and UDP paths with faults. Clients send requests
// at random times, at a given rate: chat, responses and messages, whole and streamed, text and tools. Each
// request determines its answer, which is compared in full. A few model servers die within the answer, fail, or
// think for a long time; a few clients leave, pause, or stop reading.
//
// # Faults
//
// Each lane causes one fault after the other, in parallel with the other lanes:
//
//	gateway        reload, SIGTERM and start, kill -9
//	configuration  reload
//	connectors     kill -9, freeze, stall, restart, reload, rotate the token
//	hosts          freeze a quarter of all connectors
//	paths          lose, delay and stop packets, rebind
//	model servers  kill -9
//	management     move a deployment, create and revoke keys
//
// The gateway dies only in the first two fifths of a run. In the rest, the memory of one process is observed.
//
// # Causes
//
// The log has each fault with its connectors, from just before it is caused until the system has been healthy
// again for some seconds. Each kind of fault excuses certain failures. Some kinds excuse none: a rebind, lost and
// late packets, a stall of less than a second, a moved deployment. A reload excuses that a request finds its
// connection closed before an answer, but no end of a running request. A deployment with two connectors may be
// offline only if both have a fault. Nothing excuses a wrong answer, an incomplete stream without an error, a
// request without an end, or a request that reaches a model twice. It is a finding, too, if something does not
// recover after a fault, or still runs after the last client has left.
//
// An overloaded machine also loses tunnels. That is a cause if a small request to the gateway is late while some
// process is always waiting for a processor (/proc/pressure/cpu). The report lists it among the faults. A run
// that should prove something must not have any.
//
// # Growth
//
// The last 45 % of a run are divided into quarters. A figure grows if the median of the last quarter is above
// that of the first by more than a floor (20 MB of RSS, 100 goroutines, 40 open files) and a share (15 % of RSS,
// 8 % of the others), and the median of the third by more than half of that. In addition, goroutines, open files
// and live heaps are compared at rest: after one request of each kind for each deployment, and after the last
// request. A run of less than fifteen minutes is too short for the first comparison, but not for the second.
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

// Roles of the processes of a run.
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
			// The grace is short: a process that drains still counts its goroutines.
			return agents.Run(ctx, in, out, func(n int) agent.Options {
				return agent.Options{Logger: logger.With("number", n), DrainTimeout: 10 * time.Second}
			})
		},
	}}
}

func main() { program().Run(execute) }

// execute runs the soak as the arguments say, and prints the report.
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

// options are the size and the length of a run.
type options struct {
	Length     time.Duration
	Connectors int     // total number
	Real       int     // number of connectors with their own processes
	Rate       float64 // requests a second
	Seed       uint64
	Bin        string // folder of the binaries; "" is the repository's bin
}

// parseFlags reads the command line into options.
func parseFlags(args []string) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	minutes := flags.Float64("minutes", 30, "length of the run in `minutes`")
	flags.IntVar(&o.Connectors, "connectors", 500, "`number` of connectors")
	flags.IntVar(&o.Real, "real", 8, "`number` of connectors with their own processes, to be killed and frozen")
	flags.Float64Var(&o.Rate, "rps", 40, "requests per `second`; two slow cores can serve 40")
	flags.Uint64Var(&o.Seed, "seed", 0,
		"`number` that seeds requests and faults; 0 chooses one and prints it")
	flags.StringVar(&o.Bin, "bin", "", "`folder` of caddy and connector (default: bin of the repository)")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	o.Length = time.Duration(*minutes * float64(time.Minute))
	if o.Seed == 0 {
		o.Seed = rand.Uint64()>>32 + 1 // short enough to type
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
	case o.Rate < 0.1 || o.Rate > 1000:
		return o, fmt.Errorf("-rps: %v is not between 0.1 and 1000", o.Rate)
	}
	return o, nil
}

// random returns a separate generator for each purpose, so that the use of one does not change the numbers of
// another.
func (o options) random(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(o.Seed, purpose)) }

// pick returns a random element.
func pick[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// upTo returns a random duration below limit.
func upTo(random *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(random.Int64N(limit.Milliseconds())) * time.Millisecond
}
