//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig/lab"
	"github.com/postern-dev/postern/tests/upstream/play"
)

const (
	lossClients = 16
	lossStreams = 10
	lossBulk    = 4         // clients with large bodies
	bulkBytes   = 256 << 10 // per body

	lossAnswerLimit = 2 * time.Minute // for an answer with many retransmissions
	lossAttempts    = 2               // number of attempts for a measurement, which a lost tunnel ends
)

// A lossySystem is a system whose connector is behind a line with loss.
type lossySystem struct {
	*system
	name, kind, tcp string
	line            *lab.Lab
	prompts         *prompts
	rounds          map[float64][]lossRound // by packet loss in percent
}

// lossRound are the figures of one round. Figures without a successful attempt are zero. Broken counts the
// failed attempts.
type lossRound struct {
	Streams, Requests, Prompts, Answers figures
	EventBytes                          float64 // bytes on the line per event, in both directions
	Broken                              int
	Turns                               []turn
}

// lossyLine runs the parts with a lossy line in a process with its own network namespace, and returns the
// report of that process.
func (b *builder) lossyLine(ctx context.Context, o options) (string, error) {
	if missing := lab.Missing(); missing != nil {
		return fmt.Sprintf("### A line that loses packets\n\nNot measured: it needs %v.\n\n", missing), nil
	}
	o.Bin = b.rig.Bin() // that process has another working directory
	if o.Compare != "" {
		o.Compare = b.rig.old.Bin()
	}
	input, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("encoding the options: %w", err)
	}
	var output strings.Builder
	p, err := b.rig.Process("loss", func() *exec.Cmd {
		cmd := program().InRole(roleLoss)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &output, os.Stderr
		lab.Isolate(cmd)
		return cmd
	})
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		return "", err
	}
	defer stop(p)
	if code, err := p.Wait(ctx); err != nil || code != 0 {
		return "", cmp.Or(err, errors.New("the measurement on a lossy line failed, see above"))
	}
	return output.String(), nil
}

// inNamespace is the role of that process.
func inNamespace(ctx context.Context, in io.Reader, out io.Writer) error {
	var o options
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("reading the options: %w", err)
	}
	o.AnswerLimit = lossAnswerLimit
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("setting up the loopback: %w: %s", err, out)
	}
	ctx, r, end, err := newRigs(ctx, o)
	if err != nil {
		return err
	}
	systems, err := measureLoss(ctx, r, o)
	if err != nil {
		err = command.Explain(ctx, err)
	}
	if err := errors.Join(err, end(false)); err != nil {
		return err
	}
	if o.measures(partTurns) {
		writeTurns(out, o, systems)
	}
	if o.measures(partLoss) {
		writeLoss(out, o, systems)
	}
	return nil
}

// measureLoss measures each system with each loss.
func measureLoss(ctx context.Context, r rigs, o options) ([]*lossySystem, error) {
	systems := slices.DeleteFunc([]*lossySystem{
		{name: "QUIC", kind: postern},
		{name: "QUIC, old", kind: old},
		{name: "WebSocket", kind: webSocket},
		{name: "WebSocket, TCP cubic", kind: webSocket, tcp: "cubic"},
	}, func(w *lossySystem) bool { return !o.has(w.kind) })
	texts, err := newPrompts(o.Root)
	if err != nil {
		return nil, err
	}
	for _, w := range systems {
		w.prompts = texts
		if w.line, err = lab.New(); err != nil {
			return nil, fmt.Errorf("creating a network: %w", err)
		}
		defer w.line.Close()
		if err := w.start(ctx, r, o); err != nil {
			return nil, fmt.Errorf("%s over a line: %w", w.name, err)
		}
	}
	for round := range o.LossRounds {
		for i, percent := range o.Loss {
			for j := range systems {
				w := systems[(j+round+i)%len(systems)] // rotate their order
				command.Progress("round %d of %d, a line with %v %% loss: %s", round+1, o.LossRounds, percent, w.name)
				w.line.WAN.Set(lab.Conditions{Delay: o.RTT / 2, Loss: percent / 100})
				measured, err := w.measure(ctx, o)
				if err != nil {
					return nil, fmt.Errorf("%s on a line with %v %% loss: %w", w.name, percent, err)
				}
				w.rounds[percent] = append(w.rounds[percent], measured)
			}
		}
	}
	return systems, nil
}

// start starts the system on a line with the delay but without loss. QUIC keeps the minimum round-trip time
// that it has measured, and would take a later increase for a queue.
func (w *lossySystem) start(ctx context.Context, r rigs, o options) error {
	w.rounds = map[float64][]lossRound{}
	w.line.WAN.Set(lab.Conditions{Delay: o.RTT / 2})
	if w.tcp != "" { // this overrides the choice of programs
		lock := " congctl lock " + w.tcp
		err := errors.Join(w.line.Home.IP("route replace default via "+lab.RouterLAN+lock),
			w.line.Gateway.IP("route add "+w.line.RouterAddress+" via "+w.line.RouterAddress+lock))
		if err != nil {
			return err
		}
	}
	b, err := newBuilder(r, w.line.GatewayAddress, w.line.Home.Do)
	if err != nil {
		return err
	}
	if w.system, err = b.build(ctx, w.kind); err != nil {
		return err
	}
	w.tcp, err = w.congestion()
	return err
}

// congestion returns the congestion control of TCP at both ends of the tunnel, or "" if the tunnel does not
// use TCP.
func (w *lossySystem) congestion() (string, error) {
	var ends []string
	for _, end := range []struct {
		in   *lab.Namespace
		peer string
	}{{w.line.Home, w.line.GatewayAddress}, {w.line.Gateway, w.line.RouterAddress}} {
		var out []byte
		var err error
		end.in.Do(func() { out, err = exec.Command("ss", "-tinH", "dst", end.peer).Output() })
		if err != nil {
			return "", fmt.Errorf("running ss: %w", err)
		}
		if found := regexp.MustCompile(`\b(bbr|cubic|reno)\b`).Find(out); found != nil {
			ends = append(ends, string(found))
		}
	}
	return strings.Join(ends, " / "), nil
}

// measure measures the system on the line with its current conditions.
func (w *lossySystem) measure(ctx context.Context, o options) (r lossRound, err error) {
	if o.measures(partTurns) {
		if r.Turns, err = w.measureTurns(ctx, o); err != nil {
			return r, err
		}
	}
	if !o.measures(partLoss) {
		return r, nil
	}
	event := len(play.Script{Tokens: 2}.AppendStream(nil, publicModel)) - len(play.Script{Tokens: 1}.AppendStream(nil,
		publicModel))
	requests := func(n int, t task) func() (figures, error) {
		return func() (figures, error) { return w.measureRequests(ctx, o, n, t) }
	}
	for _, m := range []struct {
		into    *figures
		measure func() (figures, error)
	}{
		{&r.Streams, func() (figures, error) { return w.measureLossStreams(ctx, o, &r) }},
		{&r.Requests, requests(lossClients, w.Target.whole(smallAnswer, 0))},
		{&r.Prompts, func() (figures, error) {
			return w.measurePrompts(ctx, o, lossBulk, func() string { return w.prompts.new(bulkBytes) })
		}},
		{&r.Answers, requests(lossBulk, w.Target.streamed(play.Script{Tokens: bulkBytes / event}, 0))},
	} {
		for range lossAttempts {
			f, err := m.measure()
			if err == nil {
				*m.into = f
				break
			}
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			r.Broken++
			command.Progress("failed attempt: %.150s", err.Error())
			if err := w.awaitAnswer(ctx, lossAnswerLimit); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// measureLossStreams reads streams and counts their bytes on the line.
func (w *lossySystem) measureLossStreams(ctx context.Context, o options, r *lossRound) (figures, error) {
	read, end := w.count()
	defer end()
	f, err := w.measureStreams(ctx, o, lossStreams)
	r.EventBytes = float64(read()) / float64(lossStreams*int(o.Stream/o.Pace))
	return f, err
}

// count counts the bytes of all packets on the line until end is called.
func (w *lossySystem) count() (read func() int64, end func()) {
	var bytes atomic.Int64
	w.line.WAN.Tap(func(p lab.Packet, _ bool) { bytes.Add(int64(len(p))) })
	return bytes.Load, func() { w.line.WAN.Tap(func(lab.Packet, bool) {}) }
}

// writeLoss prints the figures of tunnels on lossy lines.
func writeLoss(out io.Writer, o options, systems []*lossySystem) {
	t := &command.Table{Title: fmt.Sprintf("A line of %v between gateway and connector that loses packets", o.RTT)}
	t.Add("loss", "tunnel", "TCP, connector / gateway", "event p50 ms", "event p99 ms", "bytes per event", "requests/s",
		"p50 ms", "p99 ms", "prompts MB/s", "answers MB/s", "failed attempts")
	for _, percent := range o.Loss {
		for _, w := range systems {
			rounds, broken := w.rounds[percent], 0
			for _, r := range rounds {
				broken += r.Broken
			}
			median := func(f func(lossRound) float64, decimals int) string {
				return figure(command.Median(slices.DeleteFunc(each(rounds, f), func(v float64) bool { return v == 0 })), decimals)
			}
			t.Add(figure(percent, 1)+" %", w.name, w.tcp,
				median(func(r lossRound) float64 { return r.Streams.P50 }, 1),
				median(func(r lossRound) float64 { return r.Streams.P99 }, 1),
				median(func(r lossRound) float64 { return r.EventBytes }, 0),
				median(func(r lossRound) float64 { return r.Requests.Rate }, 0),
				median(func(r lossRound) float64 { return r.Requests.P50 }, 0),
				median(func(r lossRound) float64 { return r.Requests.P99 }, 0),
				median(func(r lossRound) float64 { return r.Prompts.Rate * bulkBytes / 1e6 }, 2),
				median(func(r lossRound) float64 { return r.Answers.Rate * bulkBytes / 1e6 }, 2),
				fmt.Sprint(broken))
		}
	}
	t.Write(out)
	fmt.Fprintf(out, "%d rounds. Events: %d streams of %.0f per second. %v of an event's age is the delay of the "+
		"line. Its bytes are those of all packets, in both directions. Requests: %d clients, 1 KB. Prompts and "+
		"streamed answers: %d in parallel, %d KiB each, of text that was not sent before. Failed attempts: "+
		"measurements that were repeated because the tunnel was lost.\n\n", o.LossRounds, lossStreams,
		1/o.Pace.Seconds(), o.RTT/2, lossClients, lossBulk, bulkBytes>>10)
}
