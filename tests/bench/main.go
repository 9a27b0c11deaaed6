// Command bench measures what Postern costs, next to what plain Caddy costs.
//
//	go run ./tests/bench                   the whole measurement, 12 to 14 minutes
//	go run ./tests/bench -quick            a coarse one, two to three minutes
//	go run ./tests/bench -parts idle,loss  some of its parts
//
// It needs bin/caddy and bin/connector (./xcaddy.sh) and Linux; the part loss
// also root, iproute2, nftables and TUN devices, and is left out without. It uses
// loopback only, or a network namespace of its own, ends every process that it
// starts, and prints Markdown to standard output; progress goes to standard
// error. The parts are requests, streams, answers, allocations, idle and loss.
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
//
// All Caddys are the same binary. Postern checks a key, finds a deployment and
// rewrites the model's name on the way there and back; plain Caddy does none of
// that. Its one setting that is not a default is a larger pool of upstream
// connections: with 64 clients the default one (32) would make it dial anew all
// the time.
//
// # How it is measured
//
// The machine's speed drifts, so the ways take turns within each round, in an
// order that rotates, and every ratio or difference is taken within a round. The
// tables show medians over the rounds, and for the aims also the range.
//
//   - Requests: each client sends its next request when it has the last answer
//     (a 1 KB completion, compared byte for byte).
//   - CPU: the kernel's clock of each process, in nanoseconds, read before and
//     after; the generator, which is this process, is not in it.
//   - Streams: the upstream writes the time (CLOCK_MONOTONIC, one clock for all
//     processes of a machine) into each event; the generator compares it with
//     the time at which the read returned that brought the event's last byte. A
//     stream's first ten events are left out.
//   - Answers: streamed answers with writes that split events and runes, and
//     with prompts of up to 64 KiB, all compared byte for byte.
//   - Idle tunnels: a fresh gateway before and after connectors of another
//     process have dialed in, both after garbage collections; memory with the
//     garbage is shown beside it.
//   - Loss: gateway and connector in two network namespaces, between them a line
//     of TUN devices (tests/rig/lab) with a delay, which loses packets at
//     random in both directions. Where the kernel has BBR, a WebSocket is also
//     measured without it: between a proxy and a relay whose sockets are told to
//     use cubic. The congestion controls in the table are those that ss shows.
//     A tunnel may be lost there; what it ended is begun again once, and counted.
//   - Allocations: the Go runtime's own count, before and after a given number of
//     requests. The connector has no such endpoint: here, and for -profile, the
//     same agent runs within a process of the bench.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

func main() { program().Run(execute) }

// execute does what the command line says, and prints the report.
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

// parseFlags reads the command line into options.
func parseFlags(args []string) (options, error) {
	o := fullRun()
	if slices.Contains(args, "-quick") || slices.Contains(args, "--quick") {
		o = quickRun() // before the other flags, which change it
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Bool("quick", false, "a coarse run of two to three minutes, for the other flags to change")
	flags.Var(listFlag[string]{&o.Parts, func(s string) (string, error) { return s, nil }}, "parts", "what to measure: a `list` of "+strings.Join(allParts, ", "))
	flags.IntVar(&o.Rounds, "rounds", o.Rounds, "`number` of rounds in which the systems take turns")
	flags.Var(listFlag[int]{&o.Clients, strconv.Atoi}, "clients", "`numbers` of clients that send requests at a time")
	flags.DurationVar(&o.Load, "load", o.Load, "how long each number of clients sends requests, per system and round")
	flags.Var(listFlag[int]{&o.Streams, strconv.Atoi}, "streams", "`numbers` of streams at a time")
	flags.DurationVar(&o.Stream, "stream", o.Stream, "how long each number of streams runs, per system and round")
	flags.IntVar(&o.Answers, "answers", o.Answers, "`number` of streamed answers that are compared")
	flags.Var(listFlag[int]{&o.Tunnels, strconv.Atoi}, "tunnels", "`numbers` of idle tunnels, at most 5000")
	flags.DurationVar(&o.Settle, "settle", o.Settle, "how long idle tunnels are left alone before memory is read")
	flags.Var(listFlag[float64]{&o.Loss, parsePercent}, "loss", "shares of packets that the line loses, in `percent`")
	flags.DurationVar(&o.RTT, "rtt", o.RTT, "round-trip time of that line")
	flags.IntVar(&o.LossRounds, "loss-rounds", o.LossRounds, "`number` of rounds on that line")
	flags.Var(listFlag[string]{&o.Systems, func(s string) (string, error) { return s, nil }}, "systems", "of which: a `list`; requests and streams are compared with direct")
	flags.StringVar(&o.Profile, "profile", "", "save CPU and allocation profiles of gateway and connector in this `folder`")
	flags.StringVar(&o.Bin, "bin", o.Bin, "`folder` of caddy and connector (default: bin of the repository)")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("%q is not an option", flags.Arg(0))
	}
	return o, o.check()
}

// A listFlag is a flag of values between commas.
type listFlag[T any] struct {
	values *[]T
	parse  func(string) (T, error)
}

// String implements flag.Value.
func (l listFlag[T]) String() string {
	if l.values == nil {
		return ""
	}
	text := make([]string, len(*l.values))
	for i, v := range *l.values {
		text[i] = fmt.Sprint(v)
	}
	return strings.Join(text, ",")
}

// Set implements flag.Value.
func (l listFlag[T]) Set(text string) error {
	var values []T
	for part := range strings.SplitSeq(text, ",") {
		v, err := l.parse(part)
		if err != nil {
			return err
		}
		values = append(values, v)
	}
	*l.values = values
	return nil
}

func parsePercent(text string) (float64, error) { return strconv.ParseFloat(text, 64) }
