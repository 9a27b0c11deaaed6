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
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
)

// lossy is what tunnels did on a line that loses packets.
type lossy struct {
	Missing string // why nothing was measured, "" if it was
	Results []lossResult
}

// A lossResult is one way on one line.
type lossResult struct {
	Way     string
	Percent float64 // of the packets that the line loses
	// Congestion is what TCP does about it, at the connector and at the gateway.
	Congestion [2]string
	Rounds     []lossRound
}

// A lossRound is what one round has shown.
type lossRound struct {
	Requests load   // lossClients clients
	Prompts  load   // lossBulk clients with prompts of bulkBytes
	Answers  load   // lossBulk clients, with streamed answers of bulkBytes
	Streams  stream // lossStreams streams
	// Broken counts measurements that did not come to their end, most likely
	// because the tunnel was given up. They were tried again.
	Broken int
}

// The ways over a lossy line.
const (
	wayQUIC      = "QUIC"
	wayWebSocket = "WebSocket"
	// wayCubic is a WebSocket whose packets cross the line between a proxy and
	// a relay of the bench, which leave TCP as most systems have it.
	wayCubic = "WebSocket, TCP cubic"
)

// The ways of TCP to take a lost packet.
const (
	bbr   = "bbr"   // as one of many
	cubic = "cubic" // as the sign of a full line
)

const (
	lossClients = 16
	lossStreams = 10
	lossBulk    = 4
	bulkBytes   = 256 << 10
)

// megabytes returns how many of them a load of bulk tasks moved in a second.
func megabytes(l load) float64 { return l.Rate * bulkBytes / 1e6 }

// lossyLine measures on a lossy line, in a process whose network is its own.
func (r *results) lossyLine(ctx context.Context, b *builder) error {
	o := r.Options
	o.Bin = b.rig.Bin() // it has another working folder
	if !o.measures(partLoss) || len(o.tunnels()) == 0 || len(o.Loss) == 0 {
		return nil
	}
	if missing := labMissing(); missing != nil {
		r.Loss = &lossy{Missing: missing.Error()}
		command.Progress("a lossy line: not measured, it needs %v", missing)
		return nil
	}
	input, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("passing on the options: %w", err)
	}
	var output bytes.Buffer
	p, err := b.rig.Process("loss", func() *exec.Cmd {
		cmd := program().InRole(roleLoss)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &output, os.Stderr
		isolate(cmd)
		return cmd
	})
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		return err
	}
	defer stop(p)
	if code, err := p.Wait(ctx); err != nil || code != 0 {
		return cmp.Or(err, errors.New("measuring on a lossy line has failed: see above"))
	}
	if err := json.Unmarshal(output.Bytes(), &r.Loss); err != nil {
		return fmt.Errorf("reading what was measured on a lossy line: %w", err)
	}
	return nil
}

// lossInNamespace is the process in which a lossy line is.
func lossInNamespace(ctx context.Context, in io.Reader, out io.Writer) error {
	var o options
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("reading the options: %w", err)
	}
	ctx, processes, end, err := newRig(ctx, o.Bin)
	if err != nil {
		return err
	}
	o.AnswerLimit = lossAnswerLimit
	results, err := measureLoss(ctx, processes, o)
	if err != nil {
		err = command.Explain(ctx, err)
	}
	if err := errors.Join(err, end()); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(lossy{Results: results})
}

// lossAnswerLimit is how long an answer may take that has to be sent again and
// again.
const lossAnswerLimit = 2 * time.Minute

// lossAttempts is how often a measurement is begun that a lost tunnel ends.
const lossAttempts = 2

// measureWay measures one way on the line as it is. What comes to no end in all
// attempts stays zero.
func (s *system) measureWay(ctx context.Context, o options) (r lossRound, err error) {
	task := func(into *load, clients int, what task) func() error {
		return func() (err error) {
			*into, err = s.measureTask(ctx, o, clients, what)
			return err
		}
	}
	for _, measure := range []func() error{
		task(&r.Requests, lossClients, smallTask()),
		task(&r.Prompts, lossBulk, bulkPrompt()),
		task(&r.Answers, lossBulk, bulkAnswer()),
		func() (err error) {
			r.Streams, err = s.measureStreams(ctx, o, lossStreams)
			return err
		},
	} {
		for range lossAttempts {
			err := measure()
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return r, context.Cause(ctx)
			}
			r.Broken++
			command.Progress("broken off: %.150s", err.Error())
			if err := rig.Poll(ctx, lossAnswerLimit, poll, "an answer over the line", s.try); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}
