package play

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/postern-dev/postern/tests/rig/modelserver"
)

// ReportPath is where a server reports what it does.
const ReportPath = "/report"

// A Report is what a server does, and what it has seen since its last report.
type Report struct {
	Running int     `json:"running"` // requests with an id
	Seen    []int64 `json:"seen"`    // their ids
}

// A server plays scripts.
type server struct {
	mu     sync.Mutex
	report Report
}

// Serve serves at an address until ctx ends. It announces where.
func Serve(ctx context.Context, address string, announce io.Writer) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Fprintln(announce, l.Addr())
	err = modelserver.Serve(ctx, l, (&server{}).play)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// play answers one request.
func (s *server) play(x *modelserver.Exchange) {
	switch {
	case x.Request.Target == ReportPath:
		answerJSON(x, http.StatusOK, s.take())
		return
	case x.Request.Method != http.MethodPost:
		answerJSON(x, http.StatusNotFound, []byte(`{"error":{"code":404,"message":"this model server plays scripts only"}}`))
		return
	}
	body := x.Request.Body
	script, err := Find(body)
	if err != nil {
		answerJSON(x, http.StatusBadRequest, []byte(`{"error":{"code":400,"message":`+quote(err.Error())+`}}`))
		return
	}
	if script.ID != 0 {
		s.enter(script.ID)
		defer s.leave()
	}
	time.Sleep(script.First)
	a := newAnswer(script, modelOf(body))
	switch {
	case script.End == Fails:
		answerJSON(x, http.StatusInternalServerError,
			[]byte(`{"error":{"code":500,"message":"the slot state was lost","type":"server_error"}}`))
	case bytes.Contains(body, []byte(`"stream":true`)):
		a.usage = bytes.Contains(body, []byte(`"include_usage":true`))
		a.stream(x)
	default:
		time.Sleep(time.Duration(script.Tokens) * script.Pace)
		if script.End == Dies {
			x.Die()
		}
		answerJSON(x, http.StatusOK, a.appendWhole(nil))
	}
}

func answerJSON(x *modelserver.Exchange, status int, body []byte) {
	x.Answer(status, "application/json", string(body))
}

// modelOf returns the model that a request body names, "" if it names none.
func modelOf(body []byte) string {
	_, rest, found := bytes.Cut(body, []byte(`"model":"`))
	if !found {
		return ""
	}
	name, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(name)
}

// stream writes the events of the script, each in one write and one chunk.
func (a *answer) stream(x *modelserver.Exchange) {
	x.Head(http.StatusOK, "Content-Type: text/event-stream", "Cache-Control: no-cache", "Transfer-Encoding: chunked")
	var out []byte
	next := time.Now()
	for i := 0; !x.Broken(); i++ {
		if a.Pace > 0 {
			time.Sleep(time.Until(next))
			if now := time.Now(); now.Sub(next) > a.Pace {
				next = now // a model that was held up does not catch up in a burst
			}
			next = next.Add(a.Pace)
		}
		if a.End == Dies && i > a.Tokens/2 {
			x.Die()
			return
		}
		var more bool
		if out, more = a.appendEvent(out[:0], i); !more {
			break
		}
		x.Chunk(string(out))
	}
	x.End()
}

// enter counts a request; leave counts it off.
func (s *server) enter(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Running++
	s.report.Seen = append(s.report.Seen, id)
}

func (s *server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report.Running--
}

// take returns the report, and begins another one.
func (s *server) take() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, _ := json.Marshal(s.report) // numbers cannot fail
	s.report.Seen = nil
	return b
}
