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
	bulkBytes   = 256 << 10 // of each

	lossAnswerLimit = 2 * time.Minute // for an answer that has to be sent again and again
	lossAttempts    = 2               // a measurement is begun that a lost tunnel ends
)

// A lossyWay is a system whose connector is at the other end of a line.
type lossyWay struct {
	*system
	name, kind, tcp string
	line            *lab.Lab
	prompts         *prompts
	rounds          map[float64][]lossRound // by the loss in percent
}

// lossRound are the figures of one round; what comes to no end in all attempts
// stays zero. Broken counts attempts that ended before.
type lossRound struct {
	Streams, Requests, Prompts, Answers figures
	EventBytes                          float64 // on the line, of both directions, for each event
	Broken                              int
	Turns                               []turn
}

// lossyLine measures on a lossy line, in a process whose network is its own, and
// returns that process's report.
func (b *builder) lossyLine(ctx context.Context, o options) (string, error) {
	if missing := lab.Missing(); missing != nil {
		return fmt.Sprintf("### A line that loses packets\n\nNot measured: it needs %v.\n\n", missing), nil
	}
	o.Bin = b.rig.Bin() // that process has another working folder
	if o.Compare != "" {
		o.Compare = b.rig.old.Bin()
	}
	input, err := json.Marshal(o)
	if err != nil {
		return "", fmt.Errorf("passing on the options: %w", err)
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
		return "", cmp.Or(err, errors.New("measuring on a lossy line has failed: see above"))
	}
	return output.String(), nil
}

// inNamespace is the process in which the lossy lines are.
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
	ways, err := measureLoss(ctx, r, o)
	if err != nil {
		err = command.Explain(ctx, err)
	}
	if err := errors.Join(err, end(false)); err != nil {
		return err
	}
	if o.measures(partTurns) {
		writeTurns(out, o, ways)
	}
	if o.measures(partLoss) {
		writeLoss(out, o, ways)
	}
	return nil
}

// measureLoss takes each way over each line.
func measureLoss(ctx context.Context, r rigs, o options) ([]*lossyWay, error) {
	ways := slices.DeleteFunc([]*lossyWay{
		{name: "QUIC", kind: postern},
		{name: "QUIC, old", kind: old},
		{name: "WebSocket", kind: webSocket},
		{name: "WebSocket, TCP cubic", kind: webSocket, tcp: "cubic"},
	}, func(w *lossyWay) bool { return !o.has(w.kind) })
	texts, err := newPrompts(o.Root)
	if err != nil {
		return nil, err
	}
	for _, w := range ways {
		w.prompts = texts
		if w.line, err = lab.New(); err != nil {
			return nil, fmt.Errorf("making a network: %w", err)
		}
		defer w.line.Close()
		if err := w.start(ctx, r, o); err != nil {
			return nil, fmt.Errorf("%s over a line: %w", w.name, err)
		}
	}
	for round := range o.LossRounds {
		for i, percent := range o.Loss {
			for j := range ways {
				w := ways[(j+round+i)%len(ways)] // they take turns
				command.Progress("round %d of %d, a line that loses %v %%: %s", round+1, o.LossRounds, percent, w.name)
				w.line.WAN.Set(lab.Conditions{Delay: o.RTT / 2, Loss: percent / 100})
				measured, err := w.measure(ctx, o)
				if err != nil {
					return nil, fmt.Errorf("%s on a line that loses %v %%: %w", w.name, percent, err)
				}
				w.rounds[percent] = append(w.rounds[percent], measured)
			}
		}
	}
	return ways, nil
}

// start starts the system, on a line that has its delay and loses nothing: QUIC
// takes what it has seen as the least round trip for good, and a longer one for a
// queue.
func (w *lossyWay) start(ctx context.Context, r rigs, o options) error {
	w.rounds = map[float64][]lossRound{}
	w.line.WAN.Set(lab.Conditions{Delay: o.RTT / 2})
	if w.tcp != "" { // whatever programs choose
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

// congestion returns what TCP does about lost packets at both ends of the tunnel,
// "" if it has no part in that.
func (w *lossyWay) congestion() (string, error) {
	var ends []string
	for _, end := range []struct {
		in   *lab.Namespace
		peer string
	}{{w.line.Home, w.line.GatewayAddress}, {w.line.Gateway, w.line.RouterAddress}} {
		var out []byte
		var err error
		end.in.Do(func() { out, err = exec.Command("ss", "-tinH", "dst", end.peer).Output() })
		if err != nil {
			return "", fmt.Errorf("asking ss about TCP: %w", err)
		}
		if found := regexp.MustCompile(`\b(bbr|cubic|reno)\b`).Find(out); found != nil {
			ends = append(ends, string(found))
		}
	}
	return strings.Join(ends, " / "), nil
}

// measure measures the way on the line as it is.
func (w *lossyWay) measure(ctx context.Context, o options) (r lossRound, err error) {
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
	requests := func(n int, what task) func() (figures, error) {
		return func() (figures, error) { return w.measureRequests(ctx, o, n, what) }
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
			command.Progress("broken off: %.150s", err.Error())
			if err := w.awaitAnswer(ctx, lossAnswerLimit); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// measureLossStreams reads streams, and counts what they take on the line.
func (w *lossyWay) measureLossStreams(ctx context.Context, o options, r *lossRound) (figures, error) {
	read, end := w.count()
	defer end()
	f, err := w.measureStreams(ctx, o, lossStreams)
	r.EventBytes = float64(read()) / float64(lossStreams*int(o.Stream/o.Pace))
	return f, err
}

// count counts the bytes of all packets on the line, until end.
func (w *lossyWay) count() (read func() int64, end func()) {
	var bytes atomic.Int64
	w.line.WAN.Tap(func(p lab.Packet, _ bool) { bytes.Add(int64(len(p))) })
	return bytes.Load, func() { w.line.WAN.Tap(func(lab.Packet, bool) {}) }
}

// writeLoss prints what tunnels did on a lossy line.
func writeLoss(out io.Writer, o options, ways []*lossyWay) {
	t := &command.Table{Title: fmt.Sprintf("A line of %v between gateway and connector that loses packets", o.RTT)}
	t.Add("loss", "tunnel", "TCP, connector / gateway", "event p50 ms", "event p99 ms", "bytes an event", "requests/s",
		"p50 ms", "p99 ms", "prompts MB/s", "answers MB/s", "broken off")
	for _, percent := range o.Loss {
		for _, w := range ways {
			rounds, broken := w.rounds[percent], 0
			for _, r := range rounds {
				broken += r.Broken
			}
			of := func(f func(lossRound) float64, decimals int) string {
				return figure(command.Median(slices.DeleteFunc(each(rounds, f), func(v float64) bool { return v == 0 })), decimals)
			}
			t.Add(figure(percent, 1)+" %", w.name, w.tcp,
				of(func(r lossRound) float64 { return r.Streams.P50 }, 1),
				of(func(r lossRound) float64 { return r.Streams.P99 }, 1),
				of(func(r lossRound) float64 { return r.EventBytes }, 0),
				of(func(r lossRound) float64 { return r.Requests.Rate }, 0),
				of(func(r lossRound) float64 { return r.Requests.P50 }, 0),
				of(func(r lossRound) float64 { return r.Requests.P99 }, 0),
				of(func(r lossRound) float64 { return r.Prompts.Rate * bulkBytes / 1e6 }, 2),
				of(func(r lossRound) float64 { return r.Answers.Rate * bulkBytes / 1e6 }, 2),
				fmt.Sprint(broken))
		}
	}
	t.Write(out)
	fmt.Fprintf(out, "%d rounds. Events: %d streams of %.0f a second; the line alone takes %v of their age; their bytes "+
		"are those of all "+
		"packets, in both directions. Requests: %d clients, 1 KB. Prompts and streamed answers: %d at a time, of %d KiB "+
		"each; "+
		"prompts are text that was not sent before. Broken off: measurements that were begun "+
		"again because the tunnel was lost.\n\n", o.LossRounds, lossStreams, 1/o.Pace.Seconds(), o.RTT/2, lossClients,
		lossBulk, bulkBytes>>10)
}
