//go:build linux

package main

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/tests/command"
)

const (
	turnBytes     = 30 << 10 // that each turn adds to a conversation
	lastTurn      = 20
	conversations = 3 // of each round
)

// prompts are made of the text of this repository.
type prompts struct {
	text  []byte
	seeds uint64 // that were used: no two prompts of a run are the same
	mu    sync.Mutex
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

// seed returns the seed of another prompt.
func (p *prompts) seed() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seeds++
	return p.seeds
}

// prompt returns about n bytes of text, escaped for JSON. Fewer bytes of a seed are the
// beginning of more.
func (p *prompts) prompt(seed uint64, n int) string {
	const part = 2 << 10
	var b strings.Builder
	for random := rand.New(rand.NewPCG(seed, 1)); b.Len() < n; {
		at := random.IntN(len(p.text) - part)
		text, _ := json.Marshal(strings.ToValidUTF8(string(p.text[at:at+part]), "")) // strings have a form
		b.Write(text[1 : len(text)-1])
	}
	return b.String()
}

// new returns a prompt of about n bytes that was not there before.
func (p *prompts) new(n int) string { return p.prompt(p.seed(), n) }

// image returns a new prompt of about n bytes, half of it random bytes in base64.
func (p *prompts) image(n int) string {
	random := make([]byte, n/2*3/4)
	_, _ = cryptorand.Read(random) // it never fails
	return p.new(n/2) + base64.StdEncoding.EncodeToString(random)
}

// measurePrompts lets n clients send large prompts.
func (s *system) measurePrompts(ctx context.Context, o options, n int, prompt func() string) (figures, error) {
	clients, err := s.dialAll(n, o.Warmup+o.Load+o.AnswerLimit)
	if err != nil {
		return figures{}, err
	}
	defer closeAll(clients)
	send := func(d time.Duration) ([]float64, error) {
		return closedLoop(ctx, clients, d, func() task { return s.Target.ask(smallAnswer, prompt()) })
	}
	if _, err := send(o.Warmup); err != nil {
		return figures{}, fmt.Errorf("warming up: %w", err)
	}
	return s.measure(func() ([]float64, error) { return send(o.Load) })
}

// A turn is what the last turn of a conversation took.
type turn struct {
	Time  float64 // until its answer began to arrive, in milliseconds
	Bytes float64 // on the line, of both directions
}

// measureTurns lets a client send the last turns of conversations, one after the other.
func (w *lossyWay) measureTurns(ctx context.Context, o options) (turns []turn, err error) {
	clients, err := w.dialAll(1, conversations*lastTurn*o.AnswerLimit)
	if err != nil {
		return nil, err
	}
	defer closeAll(clients)
	read, end := w.count()
	defer end()
	for range conversations {
		seed := w.prompts.seed()
		for n := lastTurn - 2; n <= lastTurn; n++ {
			what, before, began := w.Target.ask(smallAnswer, w.prompts.prompt(seed, n*turnBytes)), read(), time.Now()
			if err := clients[0].do(what); err != nil {
				return nil, fmt.Errorf("turn %d: %w", n, err)
			}
			if n == lastTurn {
				turns = append(turns, turn{milliseconds(time.Since(began)), float64(read() - before)})
			}
			if err := command.Pause(ctx, o.RTT); err != nil { // acknowledgements
				return nil, err
			}
		}
	}
	return turns, nil
}

// writeTurns prints what the last turns of conversations took.
func writeTurns(out io.Writer, o options, ways []*lossyWay) {
	t := &command.Table{Title: fmt.Sprintf("Turn %d of a conversation of %d KB, over a line of %v", lastTurn,
		lastTurn*turnBytes/1000, o.RTT)}
	t.Add("loss", "tunnel", "ms", "KB on the line")
	for _, percent := range o.Loss {
		for _, w := range ways {
			turns := slices.Concat(each(w.rounds[percent], func(r lossRound) []turn { return r.Turns })...)
			t.Add(figure(percent, 1)+" %", w.name,
				figure(command.Median(each(turns, func(v turn) float64 { return v.Time })), 0),
				figure(command.Median(each(turns, func(v turn) float64 { return v.Bytes / 1000 })), 1))
		}
	}
	t.Write(out)
	fmt.Fprintf(out, "%d conversations in each of %d rounds, one at a time. The time ends with the answer, which takes "+
		"%v on the line.\n\n",
		conversations, o.LossRounds, o.RTT/2)
}
