package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/tests/upstream/play"
)

// answers counts streamed answers that were compared byte for byte.
type answers struct {
	Total     int
	Cut       int // without their end
	Different int // with their end, but other bytes
	Failed    int // no answer, or another status than 200
	Bytes     int64
	Took      time.Duration
	Example   string // the first thing that went wrong
}

// wrong is how many were not as they should be.
func (a answers) wrong() int { return a.Cut + a.Different + a.Failed }

// answerScript is what the i-th answer is: of 4 to 35 events, half of them
// without a pause between events, the others with very short ones; every third
// with writes that end anywhere. One prompt in eight is long.
func answerScript(i int) (s play.Script, padding int) {
	s = play.Script{ID: int64(i), Tokens: 4 + i%32, Ragged: i%3 == 0}
	if i%2 == 0 {
		s.Pace = time.Duration(i%7) * 100 * time.Microsecond
	}
	if i%8 == 3 {
		padding = 64 << 10
	}
	return s, padding
}

// measureAnswers reads the given number of streamed answers, several at a time.
func (s *system) measureAnswers(ctx context.Context, o options) (answers, error) {
	began := time.Now()
	var (
		next   atomic.Int64
		mu     sync.Mutex
		result answers
	)
	err := parallel(make([]struct{}, o.AnswerClients), func(int, struct{}) error {
		var c *client
		defer func() {
			if c != nil {
				c.Close()
			}
		}()
		for ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= o.Answers {
				break
			}
			if c == nil {
				var err error
				if c, err = s.Target.dial(answersLimit); err != nil {
					return fmt.Errorf("connecting to %s: %w", s.Name, err)
				}
			}
			n, err := s.compareAnswer(c, i)
			mu.Lock()
			result.count(i, n, err)
			mu.Unlock()
			if err != nil { // the connection is in an unknown state
				c.Close()
				c = nil
			}
		}
		return context.Cause(ctx)
	})
	result.Took = time.Since(began)
	return result, err
}

// answersLimit bounds the time of all answers on one connection.
const answersLimit = 5 * time.Minute

// errDifferent is an answer that is whole and not the right one.
var errDifferent = errors.New("the answer differs")

// compareAnswer reads the i-th answer and returns its length.
func (s *system) compareAnswer(c *client, i int) (int, error) {
	what, padding := answerScript(i)
	got, err := c.exchange(s.Target.request(requestBody(what, true, padding)))
	if err != nil {
		return 0, err
	}
	want := what.AppendStream(nil, publicModel)
	if bytes.Equal(got, want) {
		return len(got), nil
	}
	if !bytes.HasSuffix(got, []byte("data: [DONE]\n\n")) {
		return len(got), fmt.Errorf("%w: its last bytes are %q", errCut, got[max(0, len(got)-200):])
	}
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	return len(got), fmt.Errorf("%w: %d bytes instead of %d; from byte %d it is %.100q instead of %.100q",
		errDifferent, len(got), len(want), at, got[at:], want[at:])
}

// count adds the i-th answer.
func (a *answers) count(i, n int, err error) {
	a.Total++
	a.Bytes += int64(n)
	switch {
	case err == nil:
		return
	case errors.Is(err, errCut):
		a.Cut++
	case errors.Is(err, errDifferent):
		a.Different++
	default:
		a.Failed++
	}
	if a.Example == "" {
		a.Example = fmt.Sprintf("answer %d: %v", i, err)
	}
}
