package manage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/store"
)

// errEnough ends an answer that is long enough.
var errEnough = errors.New("the answer is too long")

// question returns a request of the caller to a deployment, without a body and without a key.
func question(ctx context.Context, name string, d store.Deployment) *serve.Question {
	return &serve.Question{Name: name, Deployment: d, Owner: cmp.Or(CallerFrom(ctx).User, d.Account)}
}

// within returns a context that ends after the time that a whole operation may take.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, &dialect.Error{
		Kind:    dialect.KindTimeout,
		Message: fmt.Sprintf("The model server did not answer within %.f seconds.", limit.Seconds()),
	})
}

// askExplained sends a request of the console to a model. The texts of its errors are for users.
func (s *Service) askExplained(ctx context.Context, q *serve.Question, w http.ResponseWriter) (serve.Asked, error) {
	asked, err := s.askModel(ctx, q, w)
	if fault, ok := errors.AsType[*dialect.Error](err); ok {
		return asked, forUsers(fault)
	} else if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("the request was canceled: %w", err)
	}
	return asked, err
}

// askMessages sends a request of the messages dialect, in which all answers come in the same form. text is its first
// message.
func (s *Service) askMessages(
	ctx context.Context, q *serve.Question, text string, request map[string]any, r *reply,
) (err error) {
	request["model"], request["stream"] = q.Deployment.Name, true
	request["messages"] = []any{map[string]any{"role": "user", "content": text}}
	q.Operation = dialect.Operation{Kind: dialect.CreateMessage, Dialect: dialect.Messages}
	if q.Body, err = json.Marshal(request); err != nil {
		return err
	}
	r.asked, err = s.askExplained(ctx, q, r)
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// reply is the stream of a model's answer, possibly incomplete, and implements http.ResponseWriter.
type reply struct {
	serve.Whole             // the header
	maxPieces   int         // if a server ignores max_tokens
	maxText     int         // bytes that are kept
	show        func(Piece) // may be nil
	now         func() time.Time
	asked       serve.Asked

	text, thinking strings.Builder
	pieces         int       // of text or thoughts
	first, last    time.Time // when they arrived

	toolCalls int
	toolName  string // of the first call
	arguments strings.Builder
	stop      string // reason of the end
}

// Flush implements http.Flusher.
func (*reply) Flush() {}

// Write reads whole events of the messages dialect.
func (r *reply) Write(events []byte) (int, error) {
	for line := range bytes.Lines(events) {
		var event struct {
			Block struct{ Type, Name string } `json:"content_block"`
			Delta struct {
				Text, Thinking string
				Arguments      string `json:"partial_json"`
				Stop           string `json:"stop_reason"`
			}
		}
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok || json.Unmarshal(data, &event) != nil {
			continue
		}
		if event.Block.Type == "tool_use" {
			r.toolCalls++
			r.toolName = cmp.Or(r.toolName, event.Block.Name)
		}
		if r.toolCalls == 1 {
			r.arguments.WriteString(event.Delta.Arguments)
		}
		r.stop = cmp.Or(r.stop, event.Delta.Stop)
		if r.add(Piece{event.Delta.Text, event.Delta.Thinking}); r.pieces == r.maxPieces {
			return 0, errEnough
		}
	}
	return len(events), nil
}

// add adds a piece, which may be empty.
func (r *reply) add(p Piece) {
	if p == (Piece{}) {
		return
	}
	if r.last = r.now(); r.pieces == 0 {
		r.first = r.last
	}
	r.pieces++
	if r.text.Len() < r.maxText {
		r.text.WriteString(p.Text)
	}
	if r.thinking.Len() < r.maxText {
		r.thinking.WriteString(p.Thinking)
	}
	if r.show != nil {
		r.show(p)
	}
}

// Piece is a part of an answer, of either kind.
type Piece struct {
	Text     string `json:"text,omitempty"`
	Thinking string `json:"thinking,omitempty"`
}

// Speed is how fast a model answered.
type Speed struct {
	FirstTokenMillis float64 `json:"first_token_ms"`
	TokensPerSecond  float64 `json:"tokens_per_second"`
	Tokens           int     `json:"tokens"`
}

// speed returns the speed of an answer, which may be incomplete.
func (r *reply) speed() Speed {
	tokens := cmp.Or(int(r.asked.Usage.CompletionTokens), r.pieces)
	s := Speed{Tokens: tokens}
	if r.pieces == 0 {
		return s
	}
	sent := r.asked.Sent
	s.FirstTokenMillis = float64(r.first.Sub(sent).Microseconds()) / 1000
	// The first token took the time of the prompt, which says nothing about the other tokens. If all tokens came at
	// once, it is the only time known.
	took := r.last.Sub(r.first)
	if r.pieces == 1 || tokens == 1 {
		took = r.last.Sub(sent)
	} else {
		tokens--
	}
	if took > 0 {
		s.TokensPerSecond = float64(tokens) / took.Seconds()
	}
	return s
}
