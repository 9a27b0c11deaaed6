//go:build linux

// Command bench measures the cost of Postern, compared with plain Caddy.
//
//	go run ./tests/bench                      everything, about 15 minutes
//	go run ./tests/bench -quick               a coarse run, two to three minutes
//	go run ./tests/bench -parts idle,streams  some of the parts
//	go run ./tests/bench -compare DIR         with another build of Postern, in DIR
//
// It needs Linux, bin/caddy and bin/connector (./xcaddy.sh). The part turns also needs root, iproute2, nftables and
// TUN devices, and is left out without these. It uses loopback, or its own network namespace, and ends every process
// that it starts. It writes Markdown to standard output, and its progress to standard error. The parts are streams,
// turns, idle and requests.
//
// # Systems
//
// There are several paths to the same scripted model server, which runs in its own process and needs little CPU
// time:
//
//	direct     generator ─────────────────────────────────────▶ upstream
//	caddy      generator ─▶ caddy, reverse_proxy ──────────────▶ upstream
//	postern    generator ─▶ caddy, model_gateway ══▶ connector ─▶ upstream, over QUIC
//	websocket  as postern, with the tunnel for networks without UDP: a WebSocket on
//	           Caddy's HTTPS port, with the packets of QUIC inside
//
// With -compare, there is also old: as postern, with the caddy and connector of that folder. The connectors of its
// idle tunnels are still those of this program.
//
// All other Caddys are the same binary. Postern checks a key, finds a deployment and rewrites the model's name in
// both directions; plain Caddy does not. Plain Caddy has one setting that is not a default: a larger pool of
// upstream connections. With 64 clients, the default pool (32) would make it dial all the time.
//
// # Method
//
// The machine's speed drifts. So the systems are measured in turn within each round, in an order that rotates, and
// every ratio or difference is computed within a round. The tables show medians of the rounds, and for ratios and
// differences also the range.
//
//   - CPU: the kernel's clock of each process, in nanoseconds, before and after. The generator, which is this
//     process, is not included.
//   - Streams, the gateway's main job: the upstream sends events at the pace of a model, and writes the time
//     (CLOCK_MONOTONIC, which all processes of a machine share) into each. The generator compares this with the
//     time at which it has read the event's last byte. The first ten events of a stream are left out. The added
//     time is the difference from direct in the same round.
//   - Turns: gateway and connector are in two network namespaces. Between them is a line of TUN devices
//     (tests/rig/lab) with a delay. The figures are the time of the last turn of a conversation that grows with each
//     turn, and the bytes of all of its packets.
//   - Idle tunnels: a new gateway before and after the connectors of another process have connected, both after
//     garbage collections. Memory with garbage is shown in addition.
//   - Requests, a closed loop: each client sends its next request after the last answer (a completion of 1 KB,
//     compared byte for byte). This shows the cost of a request; a model takes a thousand times as long.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/tests/agents"
	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// Roles of the bench's processes.
const (
	roleUpstream = "upstream" // the scripted model server
	roleTunnels  = "tunnels"  // connectors
	roleTurns    = "turns"    // the measurement on a line, in a network namespace
)

func program() command.Command {
	return command.Command{Name: "bench", Roles: map[string]command.Role{
		roleUpstream: func(ctx context.Context, _ io.Reader, out io.Writer) error {
			return play.Serve(ctx, "127.0.0.1:0", out)
		},
		roleTunnels: func(ctx context.Context, in io.Reader, out io.Writer) error {
			return agents.Run(ctx, in, out, func(int) agent.Options { return agent.Options{} })
		},
		roleTurns: inNamespace,
	}}
}

func main() { program().Run(execute) }

// execute runs the bench as the arguments say, and prints the report.
func execute(ctx context.Context, args []string) error {
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	r, err := run(ctx, o)
	if r != nil {
		r.write(os.Stdout)
	}
	return err
}

// Systems that can be measured. The transport of the tunnel is the only difference between postern and
// websocket.
const (
	direct    = "direct"
	plain     = "caddy"
	postern   = "postern"   // over QUIC
	webSocket = "websocket" // Postern where UDP is blocked
	old       = "old"       // as postern, with the binaries to compare
)

// maxParallel is the maximum number of streams.
const maxParallel = 5000

// Parts of a run. The report begins with streams and turns, which are the gateway's main job. It ends with
// requests, a load that no model causes.
const (
	partStreams  = "streams"
	partTurns    = "turns"
	partIdle     = "idle"
	partRequests = "requests"
)

var (
	allSystems = []string{direct, plain, postern, webSocket}
	allParts   = []string{partStreams, partRequests, partTurns, partIdle}
	roundParts = allParts[:2] // measured in rounds, in which the systems take turns
)

// options are the extent of a run. Everything is limited in number or time.
type options struct {
	Parts, Systems []string // in the order of the tables
	Rounds         int
	Clients        []int         // numbers of parallel clients
	Load           time.Duration // of each number, per system and round
	Warmup         time.Duration // before each measurement
	AnswerLimit    time.Duration // maximum time of the last answer

	Streams []int         // numbers of parallel streams
	Stream  time.Duration // of each number, per system and round
	Pace    time.Duration // between two events of a stream

	Tunnels []int         // numbers of idle tunnels
	Settle  time.Duration // idle time before their memory is read

	RTT time.Duration // of the line

	Bin     string // folder of the binaries; "" is the repository's bin
	Compare string // folder of the binaries of the system old; "" for none
	Root    string // folder of the repository, whose text is used in prompts
}

// fullRun returns the default options, which take about 15 minutes on two cores.
func fullRun() options {
	return options{
		Parts: allParts, Systems: allSystems, Rounds: 4,
		Clients: []int{1, 16, 64}, Load: 2 * time.Second, Warmup: 300 * time.Millisecond, AnswerLimit: 15 * time.Second,
		Streams: []int{1, 50, 200}, Stream: 2500 * time.Millisecond, Pace: 20 * time.Millisecond,
		RTT:     50 * time.Millisecond,
		Tunnels: []int{1000, 5000}, Settle: 15 * time.Second,
	}
}

// shorten reduces a run to two or three minutes.
func (o *options) shorten() {
	o.Rounds = 1
	o.Load, o.Warmup, o.Stream = time.Second, 200*time.Millisecond, 1500*time.Millisecond
	o.Tunnels, o.Settle = []int{1000}, 3*time.Second
}

// has reports whether a system is measured; measures reports whether a part is.
func (o options) has(system string) bool    { return slices.Contains(o.Systems, system) }
func (o options) measures(part string) bool { return slices.Contains(o.Parts, part) }

// parseFlags reads the command line into options.
func parseFlags(args []string) (options, error) {
	o := fullRun()
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolFunc("quick", "a coarse run of two to three minutes; later flags can change it",
		func(string) error { o.shorten(); return nil })
	name := func(text string) (string, error) { return text, nil }
	list(flags, &o.Parts, name, "parts", "parts to measure")
	list(flags, &o.Systems, name, "systems", "systems to measure; most parts compare them with direct")
	flags.IntVar(&o.Rounds, "rounds", o.Rounds, "`number` of rounds in which the systems take turns")
	list(flags, &o.Streams, strconv.Atoi, "streams", "numbers of parallel streams")
	flags.DurationVar(&o.Stream, "stream", o.Stream, "length of streams, per system and round")
	flags.DurationVar(&o.Pace, "pace", o.Pace, "interval of the events of a stream")
	list(flags, &o.Tunnels, strconv.Atoi, "tunnels",
		"numbers of idle tunnels, at most 20000; each uses a file descriptor of the bench")
	flags.StringVar(&o.Bin, "bin", "", "`folder` of caddy and connector (default: bin of the repository)")
	flags.StringVar(&o.Compare, "compare", "",
		"`folder` of another caddy and connector, which are measured as the system old")
	err := flags.Parse(args)
	unknown := func(all []string) func(string) bool {
		return func(name string) bool { return !slices.Contains(all, name) }
	}
	switch {
	case err != nil:
	case slices.ContainsFunc(o.Parts, unknown(allParts)), slices.ContainsFunc(o.Systems, unknown(allSystems)):
		err = fmt.Errorf("the parts are %v, the systems %v", allParts, allSystems)
	case slices.Min(slices.Concat(o.Streams, o.Tunnels)) < 1 || slices.Max(o.Streams) > maxParallel ||
		slices.Max(o.Tunnels) > 20000:
		err = fmt.Errorf("must be 1 to %d streams, and 1 to 20000 tunnels", maxParallel)
	case flags.NArg() > 0:
		err = fmt.Errorf("%q is not an option", flags.Arg(0))
	case !o.has(direct) && slices.ContainsFunc(roundParts, o.measures):
		err = fmt.Errorf("-systems: %s is missing, which the others are compared with", direct)
	case o.Rounds < 1 || o.Pace <= 0 || o.Stream < 2*warmEvents*o.Pace:
		err = fmt.Errorf("must be at least one round, and streams of at least %v", 2*warmEvents*o.Pace)
	case o.Compare != "":
		o.Systems = slices.Insert(o.Systems, slices.Index(o.Systems, postern)+1, old)
	}
	return o, err
}

// list adds a flag with a comma-separated list of values.
func list[T any](flags *flag.FlagSet, target *[]T, parse func(string) (T, error), name, usage string) {
	flags.Func(name, fmt.Sprintf("%s: a `list` (default %v)", usage, *target), func(text string) error {
		*target = nil
		for part := range strings.SplitSeq(text, ",") {
			v, err := parse(part)
			if err != nil {
				return err
			}
			*target = append(*target, v)
		}
		return nil
	})
}
