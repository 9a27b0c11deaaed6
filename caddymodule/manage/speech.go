package manage

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/connector/link"
)

// model is a deployment's model, which is asked in the messages dialect: that has
// one form of an answer for all model servers.
type model struct {
	question
	name    string // the upstream's
	options compat.Options
	now     func() time.Time
}

// Admit implements [dialect.Gateway].
func (m *model) Admit(string) (compat.Options, *dialect.Error) { return m.options, nil }

// Hold implements [dialect.Gateway].
func (*model) Hold(int64) *dialect.Error { return nil }

// message is as much of an answer as tests read.
type message struct {
	Content    []block `json:"content"`
	StopReason string  `json:"stop_reason"`
}

// block is a part of an answer, or a piece of one in a stream.
type block struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	Name     string          `json:"name"` // of a tool
	Input    json.RawMessage `json:"input"`
}

// ask sends a request of the messages dialect. Without an error, the answer's body
// must be closed.
func (m *model) ask(ctx context.Context, request map[string]any) (dialect.Call, *http.Response, error) {
	request["model"] = m.name
	body, err := json.Marshal(request)
	if err != nil {
		return nil, nil, err
	}
	call, fault := dialect.Decode(dialect.Operation{Kind: dialect.CreateMessage, Dialect: dialect.Messages}, body,
		&dialect.Env{Context: ctx, Now: m.now, NewID: dialect.NewID, Gateway: m})
	if fault != nil {
		return nil, nil, fault
	}
	if body, err = io.ReadAll(call.Body(m.name)); err != nil {
		return nil, nil, err
	}
	answer, err := m.do(ctx, http.MethodPost, "/v1/chat/completions", body)
	return call, answer, err
}

// readMessage reads a whole answer.
func (m *model) readMessage(ctx context.Context, call dialect.Call, body io.Reader) (message, dialect.Usage, error) {
	var answer message
	data, err := io.ReadAll(io.LimitReader(body, maxTrialAnswer))
	if err != nil {
		return answer, dialect.Usage{}, m.explain(ctx, err)
	}
	data, usage, fault := call.Answer(data)
	if fault != nil {
		return answer, usage, shown(fault)
	}
	return answer, usage, json.Unmarshal(data, &answer)
}

// speech is the text of an answer, and when it came.
type speech struct {
	now         func() time.Time
	text        strings.Builder
	deltas      int // pieces of text or thoughts
	tokens      int // by the server's count; 0: it gave none
	first, last time.Time
}

// read reads the answer to a request for a stream to its end, or until it is long
// enough.
func (s *speech) read(ctx context.Context, m *model, call dialect.Call, answer *http.Response) error {
	if link.HasMediaType(answer.Header, "application/json") { // of a server that does not stream
		whole, usage, err := m.readMessage(ctx, call, answer.Body)
		s.count(usage, !usage.Estimated)
		for _, b := range whole.Content {
			s.add(b)
		}
		return err
	}
	stream, body, buf := call.NewStream(), io.LimitReader(answer.Body, maxTrialAnswer), make([]byte, 32<<10)
	for s.deltas < trialDeltas && !stream.Done() {
		n, err := body.Read(buf)
		s.events(stream.Feed(buf[:n]))
		if err == io.EOF {
			s.events(stream.End(nil))
		} else if err != nil && !stream.Done() {
			return m.explain(ctx, err)
		}
	}
	s.count(stream.Usage())
	if fault := stream.Err(); fault != nil {
		return shown(fault)
	}
	return nil
}

func (s *speech) count(usage dialect.Usage, counted bool) {
	if counted {
		s.tokens = int(usage.CompletionTokens)
	}
}

// events adds the text in events of the messages dialect.
func (s *speech) events(events []byte) {
	for line := range bytes.Lines(events) {
		var event struct{ Delta block }
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && json.Unmarshal(data, &event) == nil && s.deltas < trialDeltas {
			s.add(event.Delta)
		}
	}
}

// add adds a piece. Thoughts count, but are not shown.
func (s *speech) add(b block) {
	if b.Text == "" && b.Thinking == "" {
		return
	}
	s.last = s.now()
	if s.deltas == 0 {
		s.first = s.last
	}
	s.deltas++
	if s.text.Len() < maxTrialText {
		s.text.WriteString(b.Text)
	}
}
