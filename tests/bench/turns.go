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
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig/lab"
)

const (
	turnBytes     = 30 << 10 // added to the conversation by each turn
	lastTurn      = 20
	conversations = 5
)

// prompts are random excerpts of this repository.
type prompts struct {
	text  []byte
	seeds uint64 // number of seeds used; each conversation of a run has its own
}

// newPrompts reads the repository at root.
func newPrompts(root string) (*prompts, error) {
	p := new(prompts)
	for _, pattern := range []string{"docs/*.md", "connector/*/*.go", "caddymodule/*/*.go"} {
		names, _ := filepath.Glob(filepath.Join(root, pattern)) // the pattern is valid
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("reading text for prompts: %w", err)
			}
			p.text = append(p.text, text...)
		}
	}
	return p, nil
}

// prompt returns about n bytes of text, escaped for JSON. With the same seed, a shorter prompt is a prefix of
// a longer one.
func (p *prompts) prompt(seed uint64, n int) string {
	const part = 2 << 10
	var b strings.Builder
	for random := rand.New(rand.NewPCG(seed, 1)); b.Len() < n; {
		start := random.IntN(len(p.text) - part)
		text, _ := json.Marshal(strings.ToValidUTF8(string(p.text[start:start+part]), "")) // strings always encode
		b.Write(text[1 : len(text)-1])
	}
	return b.String()
}

// A turn has the figures of the last turn of a conversation.
type turn struct {
	Time  float64 // until the first byte of the answer, in milliseconds
	Bytes float64 // on the line, in both directions
}

// A remoteSystem is a system whose connector is behind a line.
type remoteSystem struct {
	*system
	name, kind string
	line       *lab.Lab
	turns      []turn
}

// turns runs that part in a process with its own network namespace, and returns the report of that process.
func (b *builder) turns(ctx context.Context, o options) (string, error) {
	if missing := lab.Missing(); missing != nil {
		return fmt.Sprintf("### Turns of conversations\n\nNot measured: it needs %v.\n\n", missing), nil
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
	p, err := b.rig.Process("turns", func() *exec.Cmd {
		cmd := program().InRole(roleTurns)
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
		return "", cmp.Or(err, errors.New("measuring turns failed, see above"))
	}
	return output.String(), nil
}

// inNamespace is the role of that process.
func inNamespace(ctx context.Context, in io.Reader, out io.Writer) error {
	var o options
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("reading the options: %w", err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("setting up the loopback: %w: %s", err, out)
	}
	ctx, r, end, err := newRigs(ctx, o)
	if err != nil {
		return err
	}
	systems, err := measureTurns(ctx, r, o)
	if err != nil {
		err = command.Explain(ctx, err)
	}
	if err := errors.Join(err, end(false)); err != nil {
		return err
	}
	writeTurns(out, o, systems)
	return nil
}

// measureTurns measures conversations of each system, in turn.
func measureTurns(ctx context.Context, r rigs, o options) ([]*remoteSystem, error) {
	systems := slices.DeleteFunc([]*remoteSystem{
		{name: "QUIC", kind: postern}, {name: "QUIC, old", kind: old}, {name: "WebSocket", kind: webSocket},
	}, func(s *remoteSystem) bool { return !o.has(s.kind) })
	texts, err := newPrompts(o.Root)
	if err != nil {
		return nil, err
	}
	for _, s := range systems {
		if s.line, err = lab.New(); err != nil {
			return nil, fmt.Errorf("creating a network: %w", err)
		}
		defer s.line.Close()
		s.line.WAN.Set(lab.Conditions{Delay: o.RTT / 2})
		b, err := newBuilder(r, s.line.GatewayAddress, s.line.Home.Do)
		if err != nil {
			return nil, err
		}
		if s.system, err = b.build(ctx, s.kind); err != nil {
			return nil, fmt.Errorf("%s over a line: %w", s.name, err)
		}
	}
	for n := range conversations {
		for i := range systems {
			s := systems[(n+i)%len(systems)] // rotate their order
			command.Progress("conversation %d of %d: %s", n+1, conversations, s.name)
			if err := s.converse(ctx, o, texts); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return systems, nil
}

// converse sends the last turns of a conversation.
func (s *remoteSystem) converse(ctx context.Context, o options, texts *prompts) error {
	var bytes atomic.Int64
	s.line.WAN.Tap(func(p lab.Packet, _ bool) { bytes.Add(int64(len(p))) })
	defer s.line.WAN.Tap(func(lab.Packet, bool) {})
	c, err := s.Target.dial(lastTurn * o.AnswerLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	texts.seeds++
	for n := lastTurn - 2; n <= lastTurn; n++ {
		t, before, began := s.Target.ask(smallAnswer, texts.prompt(texts.seeds, n*turnBytes)), bytes.Load(), time.Now()
		if err := c.do(t); err != nil {
			return fmt.Errorf("turn %d: %w", n, err)
		}
		if n == lastTurn {
			s.turns = append(s.turns, turn{milliseconds(time.Since(began)), float64(bytes.Load() - before)})
		}
		if err := command.Pause(ctx, o.RTT); err != nil { // wait for acknowledgments
			return err
		}
	}
	return nil
}

// writeTurns prints the figures of the last turns of conversations.
func writeTurns(out io.Writer, o options, systems []*remoteSystem) {
	t := &command.Table{Title: fmt.Sprintf("Turn %d of a conversation of %d KB, over a line of %v", lastTurn,
		lastTurn*turnBytes/1000, o.RTT)}
	t.Add("tunnel", "ms", "KB on the line")
	for _, s := range systems {
		t.Add(s.name, figure(command.Median(each(s.turns, func(v turn) float64 { return v.Time })), 0),
			figure(command.Median(each(s.turns, func(v turn) float64 { return v.Bytes / 1000 })), 1))
	}
	t.Write(out)
	fmt.Fprintf(out, "%d conversations, one after the other. The time includes the %v that the answer takes on the "+
		"line.\n\n", conversations, o.RTT/2)
}
