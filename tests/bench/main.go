//go:build linux

// Command bench measures what Postern costs, next to what plain Caddy costs.
//
//	go run ./tests/bench                   the whole measurement, about 20 minutes
//	go run ./tests/bench -quick            a coarse one, four to five minutes
//	go run ./tests/bench -parts idle,loss  some of its parts
//	go run ./tests/bench -compare DIR      with another build of Postern, in DIR
//
// It needs bin/caddy and bin/connector (./xcaddy.sh) and Linux; the parts loss
// and turns also root, iproute2, nftables and TUN devices, and are left out without. It uses
// loopback only, or a network namespace of its own, ends every process that it
// starts, and prints Markdown to standard output; progress goes to standard
// error. The parts are streams, turns, loss, answers, memory, idle, uploads, images,
// requests, fast, allocations and, only with -parts, edges.
//
// # What is compared
//
// Four ways to one and the same scripted model server, which runs in a process
// of its own and costs as little as it can:
//
//	direct     generator ─────────────────────────────────────▶ upstream
//	caddy      generator ─▶ caddy, reverse_proxy ──────────────▶ upstream
//	postern    generator ─▶ caddy, model_gateway ══▶ connector ─▶ upstream, over QUIC
//	websocket  the same, with the tunnel of networks without UDP: a WebSocket on
//	           Caddy's HTTPS port, inside it the tunnel's own TLS and HTTP/2
//	hop        generator ─▶ caddy ══▶ caddy ══▶ connector ─▶ upstream: two gateways with a
//	           store in etcd, of which the first one has no tunnel; only with -systems
//
// With -compare, there is also old: as postern, with the caddy and connector of that
// folder. The connectors of its idle tunnels are still this program's, and its
// connector's allocations are not counted.
//
// All other Caddys are the same binary. Postern checks a key, finds a deployment and
// rewrites the model's name on the way there and back; plain Caddy does none of
// that. Its one setting that is not a default is a larger pool of upstream
// connections: with 64 clients the default one (32) would make it dial again all
// the time.
//
// # How it is measured
//
// The machine's speed drifts, so the ways take turns within each round, in an
// order that rotates, and every ratio or difference is taken within a round. The
// tables show medians over the rounds, and for ratios and differences also the
// range.
//
//   - CPU: the kernel's clock of each process, in nanoseconds, read before and
//     after; the generator, which is this process, is not in it.
//   - Streams, the main job: the upstream sends events at the pace of a model, and
//     writes the time (CLOCK_MONOTONIC, one clock for all processes of a machine)
//     into each; the generator compares it with the time at which the read returned
//     that brought the event's last byte. A stream's first ten events are left out.
//     What is added is the difference to direct in the same round.
//   - Turns: gateway and connector in two network namespaces, between them a line
//     of TUN devices (tests/rig/lab) with a delay, which loses packets at random in
//     both directions; the last turn of a conversation that grows with each turn,
//     and the bytes of all packets that it takes.
//   - Loss: streams, with the bytes of all packets for each event, and requests and
//     bodies on the same line. A WebSocket is also measured over routes that
//     lock TCP's congestion control to cubic. The controls in the table are those
//     that ss shows. What a lost tunnel ended is begun again once, and counted.
//   - Answers: streamed answers with writes that split events and runes, and
//     with prompts of up to 64 KiB, all compared byte for byte.
//   - Memory: RSS of fresh processes, its peak while 64 clients send 5 MB each at
//     the same time, and RSS a minute later.
//   - Idle tunnels: a fresh gateway before and after connectors of another
//     process have dialed in, both after garbage collections; memory with the
//     garbage is shown in addition.
//   - Edges: three gateways with a store in etcd, connectors with two tunnels each (-tunnels is
//     their number), and how long it takes to replace those of a gateway that is killed.
//   - Uploads, images: bodies of 100 KB to 5 MB that were not sent before, one at a
//     time: text of this repository, in images with as much base64.
//   - Requests, a closed loop: each client sends its next request when it has the
//     last answer (a 1 KB completion, compared byte for byte). This shows what a
//     request costs; a model takes a thousand times as long.
//   - Fast: streams of 1000 events without a pause, eight at a time; rate and CPU
//     are those of events. No model is as fast.
//   - Allocations: the Go runtime's own count, before and after requests. The
//     connector has no such endpoint: here, and for -profile, the same agent runs
//     within a process of the bench.
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

// The roles of the processes that this program measures with.
const (
	roleUpstream = "upstream" // the scripted model server
	roleTunnels  = "tunnels"  // connectors, with Go's profiling endpoints
	roleLoss     = "loss"     // what measures on a lossy line, in a network of its own
)

func program() command.Command {
	return command.Command{Name: "bench", Roles: map[string]command.Role{
		roleUpstream: func(ctx context.Context, _ io.Reader, out io.Writer) error {
			return play.Serve(ctx, "127.0.0.1:0", out)
		},
		roleTunnels: func(ctx context.Context, in io.Reader, out io.Writer) error {
			return agents.Run(ctx, in, out, func(int) agent.Options { return agent.Options{} })
		},
		roleLoss: inNamespace,
	}}
}

func main() { program().Run(execute) }

// execute runs what the command line asks for, and prints the report.
func execute(ctx context.Context, args []string) error {
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	r, err := run(ctx, o)
	if r != nil {
		r.write(os.Stdout)
	}
	if err == nil {
		err = r.failure()
	}
	return err
}

// The systems that can be measured. They are also the ways to the model server
// in the tables; both of Postern's differ in their tunnel's transport only.
const (
	direct    = "direct"
	plain     = "caddy"
	postern   = "postern"   // over QUIC
	webSocket = "websocket" // Postern where UDP is blocked
	hop       = "hop"       // Postern on two gateways; requests reach the one without the tunnel
	old       = "old"       // as postern, of the binaries that it is compared with
)

// mostAtOnce is the largest number of clients and streams.
const mostAtOnce = 5000

// The parts of a run. The report begins with streams and turns, the gateway's main
// job, and ends with requests and fast, loads that no model causes.
const (
	partStreams     = "streams"
	partTurns       = "turns"
	partLoss        = "loss"
	partAnswers     = "answers"
	partMemory      = "memory"
	partIdle        = "idle"
	partEdges       = "edges"
	partUploads     = "uploads"
	partImages      = "images"
	partRequests    = "requests"
	partFast        = "fast"
	partAllocations = "allocations"
)

var (
	allSystems = []string{direct, plain, postern, webSocket, hop}
	allParts   = []string{
		partStreams, partUploads, partImages, partRequests, partFast, partTurns, partLoss, partAnswers, partMemory, partIdle,
		partAllocations, partEdges,
	}
	roundParts = allParts[:5] // in which all systems take turns
)

// options are how much is measured. All of it is bounded in count or time.
type options struct {
	Parts, Systems []string // what is measured, in the order of the tables
	Rounds         int
	Clients        []int         // numbers of clients that send requests at a time
	Load           time.Duration // of each of them, per system and round
	Warmup         time.Duration // before each, not counted
	AnswerLimit    time.Duration // of the last answer of each

	Streams []int         // numbers of streams at a time
	Stream  time.Duration // of each of them, per system and round
	Pace    time.Duration // between two events of a stream

	Answers int // streamed answers that are compared, per system

	Uploads []int         // sizes of bodies, in KB
	Memory  int           // size of the bodies whose memory is measured, in KB
	Rest    time.Duration // after them, until memory is read again

	Tunnels []int         // numbers of idle ones
	Settle  time.Duration // before their memory is read

	Loss       []float64     // shares of packets that the line loses, in percent
	RTT        time.Duration // of the line
	LossRounds int

	Profile string // folder for profiles; "" takes none
	Bin     string // folder of the binaries; "" is the repository's bin
	Compare string // folder of the binaries of the system old; "" for none
	Root    string // folder of the repository, whose text is sent
}

// fullRun is the default: about 20 minutes on two cores.
func fullRun() options {
	return options{
		Parts: allParts[:11], Systems: allSystems[:4], Rounds: 4,
		Clients: []int{1, 16, 64}, Load: 2 * time.Second, Warmup: 300 * time.Millisecond, AnswerLimit: 15 * time.Second,
		Streams: []int{1, 50, 200}, Stream: 2500 * time.Millisecond, Pace: 20 * time.Millisecond,
		Uploads: []int{100, 1000, 5000}, Memory: 5000, Rest: time.Minute,
		Answers: 10000, Tunnels: []int{1000, 5000}, Settle: 15 * time.Second,
		Loss: []float64{0, 0.1, 1}, RTT: 50 * time.Millisecond, LossRounds: 2,
	}
}

// hurry makes it a run of four to five minutes.
func (o *options) hurry() {
	o.Rounds, o.LossRounds = 1, 1
	o.Load, o.Warmup, o.Stream = time.Second, 200*time.Millisecond, 1500*time.Millisecond
	o.Answers, o.Tunnels, o.Settle, o.Rest = 2000, []int{1000}, 3*time.Second, 20*time.Second
}

// has reports whether a system is measured, measures whether a part is.
func (o options) has(system string) bool    { return slices.Contains(o.Systems, system) }
func (o options) measures(part string) bool { return slices.Contains(o.Parts, part) }

// parseFlags reads the command line into options.
func parseFlags(args []string) (options, error) {
	o := fullRun()
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolFunc("quick", "a coarse run of four to five minutes, for the flags behind it to change",
		func(string) error { o.hurry(); return nil })
	name := func(text string) (string, error) { return text, nil }
	list(flags, &o.Parts, name, "parts", "what to measure")
	list(flags, &o.Systems, name, "systems", "of which; all but memory, idle, loss and turns is compared with direct")
	flags.IntVar(&o.Rounds, "rounds", o.Rounds, "`number` of rounds in which the systems take turns")
	list(flags, &o.Clients, strconv.Atoi, "clients", "numbers of clients that send requests at a time")
	flags.DurationVar(&o.Load, "load", o.Load, "how long each number of clients sends requests, per system and round")
	list(flags, &o.Streams, strconv.Atoi, "streams", "numbers of streams at a time")
	flags.DurationVar(&o.Stream, "stream", o.Stream, "how long each number of streams runs, per system and round")
	flags.DurationVar(&o.Pace, "pace", o.Pace, "time between two events of a stream")
	flags.IntVar(&o.Answers, "answers", o.Answers, "`number` of streamed answers that are compared")
	list(flags, &o.Tunnels, strconv.Atoi, "tunnels",
		"numbers of idle tunnels, at most 20000; each takes a file of the bench")
	flags.DurationVar(&o.Settle, "settle", o.Settle, "how long idle tunnels are left alone before memory is read")
	percent := func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }
	list(flags, &o.Loss, percent, "loss", "shares of packets that the line loses, in percent")
	flags.DurationVar(&o.RTT, "rtt", o.RTT, "round-trip time of that line")
	flags.IntVar(&o.LossRounds, "loss-rounds", o.LossRounds, "`number` of rounds on that line")
	flags.StringVar(&o.Profile, "profile", "",
		"save CPU and allocation profiles of gateway and connector in this `folder`")
	flags.StringVar(&o.Bin, "bin", "", "`folder` of caddy and connector (default: bin of the repository)")
	flags.StringVar(&o.Compare, "compare", "",
		"`folder` of another caddy and connector, which are measured as the system old in turns with postern")
	err := flags.Parse(args)
	unknown := func(all []string) func(string) bool {
		return func(name string) bool { return !slices.Contains(all, name) }
	}
	switch {
	case err != nil:
	case slices.ContainsFunc(o.Parts, unknown(allParts)), slices.ContainsFunc(o.Systems, unknown(allSystems)):
		err = fmt.Errorf("the parts are %v, the systems %v", allParts, allSystems)
	case slices.Min(slices.Concat(o.Clients, o.Streams, o.Tunnels)) < 1 ||
		slices.Max(slices.Concat(o.Clients, o.Streams)) > mostAtOnce ||
		slices.Max(o.Tunnels) > 20000 || !(slices.Min(o.Loss) >= 0 && slices.Max(o.Loss) <= 20):
		err = fmt.Errorf("there are 1 to %d clients and streams, 1 to 20000 tunnels, and 0 to 20 %% loss", mostAtOnce)
	case flags.NArg() > 0:
		err = fmt.Errorf("%q is not an option", flags.Arg(0))
	case !o.has(direct) && slices.ContainsFunc(roundParts, o.measures):
		err = fmt.Errorf("-systems: %s is missing; the others are compared with it", direct)
	case min(o.Rounds, o.LossRounds) < 1 || min(o.Load, o.Settle, o.RTT) < 0 || o.Pace <= 0 ||
		o.Stream < 2*warmEvents*o.Pace:
		err = fmt.Errorf("there is at least one round, with streams of %v", 2*warmEvents*o.Pace)
	case o.Compare != "":
		o.Systems = slices.Insert(o.Systems, slices.Index(o.Systems, postern)+1, old)
	}
	return o, err
}

// list adds a flag of values between commas.
func list[T any](flags *flag.FlagSet, to *[]T, parse func(string) (T, error), name, usage string) {
	flags.Func(name, fmt.Sprintf("%s: a `list` (default %v)", usage, *to), func(text string) error {
		*to = nil
		for part := range strings.SplitSeq(text, ",") {
			v, err := parse(part)
			if err != nil {
				return err
			}
			*to = append(*to, v)
		}
		return nil
	})
}
