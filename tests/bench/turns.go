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
	turnBytes     = 30 << 10 // added to the conversation by each turn
	lastTurn      = 20
	conversations = 3 // per round
)

// prompts are random excerpts of this repository.
type prompts struct {
	text  []byte
	seeds uint64 // number of seeds used; each prompt of a run has its own
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

// seed returns an unused seed.
func (p *prompts) seed() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seeds++
	return p.seeds
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

// new returns a new prompt of about n bytes.
func (p *prompts) new(n int) string { return p.prompt(p.seed(), n) }

// image returns a new prompt of about n bytes, half of it random bytes in base64.
func (p *prompts) image(n int) string {
	random := make([]byte, n/2*3/4)
	_, _ = cryptorand.Read(random) // it never fails
	return p.new(n/2) + base64.StdEncoding.EncodeToString(random)
}

// measurePrompts sends large prompts with n parallel clients.
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

// A turn has the figures of the last turn of a conversation.
type turn struct {
	Time  float64 // until the first byte of the answer, in milliseconds
	Bytes float64 // on the line, in both directions
}

// measureTurns sends the last turns of conversations, one after the other.
func (w *lossySystem) measureTurns(ctx context.Context, o options) (turns []turn, err error) {
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
			t, before, began := w.Target.ask(smallAnswer, w.prompts.prompt(seed, n*turnBytes)), read(), time.Now()
			if err := clients[0].do(t); err != nil {
				return nil, fmt.Errorf("turn %d: %w", n, err)
			}
			if n == lastTurn {
				turns = append(turns, turn{milliseconds(time.Since(began)), float64(read() - before)})
			}
			if err := command.Pause(ctx, o.RTT); err != nil { // wait for acknowledgments
				return nil, err
			}
		}
	}
	return turns, nil
}

// writeTurns prints the figures of the last turns of conversations.
func writeTurns(out io.Writer, o options, systems []*lossySystem) {
	t := &command.Table{Title: fmt.Sprintf("Turn %d of a conversation of %d KB, over a line of %v", lastTurn,
		lastTurn*turnBytes/1000, o.RTT)}
	t.Add("loss", "tunnel", "ms", "KB on the line")
	for _, percent := range o.Loss {
		for _, w := range systems {
			turns := slices.Concat(each(w.rounds[percent], func(r lossRound) []turn { return r.Turns })...)
			t.Add(figure(percent, 1)+" %", w.name,
				figure(command.Median(each(turns, func(v turn) float64 { return v.Time })), 0),
				figure(command.Median(each(turns, func(v turn) float64 { return v.Bytes / 1000 })), 1))
		}
	}
	t.Write(out)
	fmt.Fprintf(out, "%d conversations in each of %d rounds, one after the other. The time includes the %v "+
		"that the answer takes on the line.\n\n",
		conversations, o.LossRounds, o.RTT/2)
}
