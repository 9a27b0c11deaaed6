package tests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// If a model server dies before its answer, the client gets an error status; if it dies within a stream, an
// error at its end. The client does not learn the server's address.
func TestUpstreamDies(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	for name, end := range map[string]func(x *upstream.Exchange){
		"closes":       (*upstream.Exchange).Die,
		"resets":       (*upstream.Exchange).Reset,
		"half-a-chunk": func(x *upstream.Exchange) { x.Write("ff\r\ndata: {"); x.Die() },
	} {
		t.Run(name, func(t *testing.T) {
			r.serve(t, name, func(x *upstream.Exchange) {
				if strings.Contains(string(x.Request.Body), `"stream":true`) {
					x.Stream()
					x.Chunk(upstream.Role(up(name)))
					x.Chunk(upstream.Delta(up(name), "so far"))
				}
				end(x)
			})
			a := r.Post(t, harness.Chat(name, ""))
			want := "upstream_unreachable"
			if name == "half-a-chunk" {
				want = "upstream_error" // it does not begin like an answer
			}
			a.ExpectError(t, http.StatusBadGateway, "server_error", want)
			if strings.Contains(a.Body, strings.TrimPrefix(r.up.URL, "http://")) {
				t.Errorf("the error contains the model server's address: %s", a.Body)
			}
			s := r.Stream(t, harness.Chat(name, `,"stream":true`))
			s.Expect(t, upstream.Role(name))
			s.Expect(t, upstream.Delta(name, "so far"))
			rest, err := s.Rest()
			if err != nil {
				t.Errorf("the stream ends with %v", err)
			}
			expectStreamError(t, rest)
		})
	}
}
