package serve

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// testRequest returns a streamed request in a dialect, and the recorder of its answer.
func testRequest(t *testing.T, d dialect.Dialect) (*clientRequest, *httptest.ResponseRecorder) {
	t.Helper()
	kind, body := dialect.ChatCompletions, `{"model":"m","stream":true,"messages":[]}`
	switch d {
	case dialect.Messages:
		kind, body = dialect.CreateMessage, `{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user",`+
			`"content":"x"}]}`
	case dialect.Responses:
		kind, body = dialect.CreateResponse, `{"model":"m","stream":true,"input":"x"}`
	}
	g := newGateway(t, 64<<20)
	ex := NewExchange()
	ex.backend = g.backend
	ex.Key, ex.Account, ex.Model = g.key, store.DefaultAccount, "m"
	ex.Deployment, ex.Operation = "m", dialect.Operation{Kind: kind, Dialect: d}
	call, derr := decode(ex.Operation, []byte(body),
		&dialect.Env{Context: t.Context(), NewID: dialect.NewID, Now: time.Now})
	if derr != nil {
		t.Fatal(derr)
	}
	rec := httptest.NewRecorder()
	a := &answer{w: rec}
	a.open(call.NewStream(), 0)
	c := g.request(ex)
	c.ctx, c.answer, c.call = t.Context(), a, call
	return c, rec
}

// decode decodes a request for a deployment without options.
func decode(op dialect.Operation, body []byte, env *dialect.Env) (dialect.Call, *dialect.Error) {
	head, derr := dialect.ReadHead(op, body, env)
	if derr != nil {
		return nil, derr
	}
	return head.Decode(compat.Options{})
}

// everyDialect lists the three dialects.
var everyDialect = [...]dialect.Dialect{dialect.Chat, dialect.Messages, dialect.Responses}

// A whole answer to a streamed request is recognized by its media type, which is the
// same in any case.
func TestWholeAnswerToStream(t *testing.T) {
	for _, d := range everyDialect {
		for _, kind := range []string{"application/json", "APPLICATION/JSON", " Application/Json ; charset=utf-8"} {
			c, rec := testRequest(t, d)
			body := `{"choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}`
			derr := c.render(&http.Response{
				StatusCode: 200, Header: http.Header{"Content-Type": {kind}},
				Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1,
			})
			if out := rec.Body.String(); derr != nil || !strings.Contains(out, "hello") ||
				strings.Contains(out, "closed the stream") {
				t.Errorf("%s, %q: %v\n%s", d, kind, derr, out)
			}
		}
	}
}

// A compressed answer that cannot be read causes an error with that text, in every
// dialect, before and after the beginning of a stream.
func TestCompressedAnswer(t *testing.T) {
	const words = "compressed its answer although it was asked not to"
	for _, d := range everyDialect {
		for status, kind := range map[int]string{200: "application/json", 400: "application/json", 500: "text/plain"} {
			c, _ := testRequest(t, d)
			broken := iotest.ErrReader(fmt.Errorf("%w: corrupt", tunnel.ErrCompressed))
			derr := c.render(&http.Response{
				StatusCode: status, Header: http.Header{"Content-Type": {kind}},
				Body: io.NopCloser(broken), ContentLength: -1,
			})
			if derr == nil || derr.HTTPStatus(d) != http.StatusBadGateway || !strings.Contains(derr.Message, words) {
				t.Errorf("%s, status %d: %v", d, status, derr)
			}
		}
		c, rec := testRequest(t, d)
		begun := strings.NewReader("data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\n")
		broken := io.MultiReader(begun, iotest.ErrReader(fmt.Errorf("%w: corrupt", tunnel.ErrCompressed)))
		derr := c.render(&http.Response{
			StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}},
			Body: io.NopCloser(broken), ContentLength: -1,
		})
		if derr != nil || !strings.Contains(rec.Body.String(), words) {
			t.Errorf("%s, stream: %v\n%s", d, derr, rec.Body)
		}
	}
	ex := &Exchange{translated: translated{Deployment: "m"}}
	derr, ok := errors.AsType[*dialect.Error](new(Router).clientError(t.Context(), ex, tunnel.ErrCompressed))
	if !ok || derr.HTTPStatus(dialect.Chat) != http.StatusBadGateway || !strings.Contains(derr.Message, words) {
		t.Errorf("an unknown coding: %v", derr)
	}
}
