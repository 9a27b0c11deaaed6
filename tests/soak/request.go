package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/postern-dev/postern/tests/upstream/play"
)

// A dialect is one of the three in which clients speak.
type dialect string

const (
	chat      dialect = "chat"
	responses dialect = "responses"
	messages  dialect = "messages"
)

var dialects = []dialect{chat, responses, messages}

func (d dialect) path() string {
	return map[dialect]string{chat: "/v1/chat/completions", responses: "/v1/responses", messages: "/v1/messages"}[d]
}

// A habit is how a client reads.
type habit string

const (
	reads  habit = "reads"
	leaves habit = "leaves" // in the middle
	pauses habit = "pauses" // for some seconds, and reads on
	deaf   habit = "deaf"   // reads no more, for longer than the gateway bears
)

// A request is one of a client's, and how it is sent and read.
type request struct {
	play.Script
	dialect  dialect
	streamed bool
	stored   bool // a response that the gateway keeps
	model    *deployment
	key      *key
	habit    habit
	fresh    bool // on a connection of its own
	leave    int  // after so many events, or in this share (percent) of a whole answer's time
}

// kind says in short what the request is.
func (r *request) kind() string {
	s := string(r.dialect)
	if r.streamed {
		s += " streamed"
	}
	if r.Tool {
		s += " tool"
	}
	if r.End != play.Whole {
		s += fmt.Sprintf(" (the model %s)", r.End)
	}
	if r.habit != reads {
		s += fmt.Sprintf(" (the client %s)", r.habit)
	}
	return s
}

// one picks one of several.
func one[T any](random *rand.Rand, from []T) T { return from[random.IntN(len(from))] }

// compose makes up a request; who answers it and who asks is not its business.
func compose(random *rand.Rand, id int64) *request {
	r := &request{
		Script: play.Script{
			ID: id, Tokens: 4 + random.IntN(40), Pace: time.Duration(random.IntN(30)) * time.Millisecond,
			Tool: random.IntN(5) == 0, End: play.Whole,
		},
		dialect: one(random, dialects), streamed: random.IntN(3) > 0, stored: random.IntN(20) == 0,
		habit: reads, fresh: random.IntN(2) == 0,
	}
	switch n := random.IntN(1000); {
	case n < 20:
		// The connector takes a kept connection that ends at once for one that
		// the model server had closed before, and sends the request again: this
		// one dies later.
		r.End, r.First = play.Dies, 500*time.Millisecond
	case n < 40:
		r.End = play.Fails
	case n < 70: // a model that thinks, some for longer than the pings' interval
		r.First = time.Duration(2+random.IntN(12)) * time.Second
	case n < 110:
		r.habit, r.leave = leaves, 1+random.IntN(80)
	case n < 113:
		r.habit = pauses
		r.fill(500)
	case n < 114:
		r.habit = deaf
		r.fill(1000)
	case n < 220: // a long answer, for faults to find it running
		r.Tokens, r.Pace = 100, time.Duration(30+random.IntN(60))*time.Millisecond
	}
	return r
}

// fill makes the answer a stream of more than the buffers between model and
// client hold. It is none of responses, which say all of it again at the end.
func (r *request) fill(tokens int) {
	r.streamed, r.Tokens, r.Bulk, r.Pace, r.Tool = true, tokens, 16<<10, 0, false
	if r.dialect == responses {
		r.dialect = chat
	}
}

// body is the request's body.
func (r *request) body() []byte {
	prompt := "Please do what follows. " + r.Script.String()
	more := ""
	if r.streamed {
		more = `,"stream":true`
	}
	parameters := `{"type":"object","properties":{"id":{"type":"integer"},"words":{"type":"string"}},"required":["id","words"]}`
	switch r.dialect {
	case responses:
		if r.Tool {
			more += fmt.Sprintf(`,"tools":[{"type":"function","name":%q,"parameters":%s,"strict":false}]`, play.ToolName, parameters)
		}
		return fmt.Appendf(nil, `{"model":%q,"input":%q,"store":%t%s}`, r.model.name, prompt, r.stored, more)
	case messages:
		if r.Tool {
			more += fmt.Sprintf(`,"tools":[{"name":%q,"input_schema":%s}]`, play.ToolName, parameters)
		}
		return fmt.Appendf(nil, `{"model":%q,"max_tokens":4096,"messages":[{"role":"user","content":%q}]%s}`, r.model.name, prompt, more)
	default:
		if r.Tool {
			more += fmt.Sprintf(`,"tools":[{"type":"function","function":{"name":%q,"parameters":%s}}]`, play.ToolName, parameters)
		}
		return fmt.Appendf(nil, `{"model":%q,"messages":[{"role":"user","content":%q}]%s}`, r.model.name, prompt, more)
	}
}
