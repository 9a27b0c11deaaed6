package main

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/upstream/play"
)

// serveBytes answers every connection's first request with given bytes, then
// closes it.
func serveBytes(t *testing.T, answer string) target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := c.Read(make([]byte, 100<<10)); err == nil {
					_, _ = io.WriteString(c, answer) // a client that left has its own error
				}
			}()
		}
	}()
	return target{Addr: l.Addr().String()}
}

// The check must see what it is there for.
func TestAnswersAreToldApart(t *testing.T) {
	s, _ := answerScript(0)
	right := string(s.AppendStream(nil, publicModel))
	chunked := func(body, end string) string {
		return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n", len(body), body) + end
	}
	const end = "0\r\n\r\n"
	for _, c := range []struct {
		name, answer string
		want         answers
	}{
		{"right", chunked(right, end), answers{}},
		{"no last chunk", chunked(right, ""), answers{Cut: 1}},
		{"cut within a chunk", chunked(right, "")[:len(right)-20], answers{Cut: 1}},
		{"no end marker", chunked(strings.TrimSuffix(right, "data: [DONE]\n\n"), end), answers{Cut: 1}},
		{"an event is missing", chunked(right[strings.Index(right, "\n\n")+2:], end), answers{Different: 1}},
		{"another model", chunked(strings.ReplaceAll(right, publicModel+`","choices`, localModel+`","choices`), end), answers{Different: 1}},
		{"an error", "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nsorr", answers{Failed: 1}},
		{"nothing", "", answers{Failed: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := tinyRun()
			o.Answers, o.AnswerClients = 1, 1
			sys := &system{Name: "fake", Target: serveBytes(t, c.answer)}
			got, err := sys.measureAnswers(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if got.Total != 1 || got.Cut != c.want.Cut || got.Different != c.want.Different || got.Failed != c.want.Failed {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if (got.Example != "") != (got.wrong() > 0) {
				t.Errorf("the example is %q", got.Example)
			}
		})
	}
}

func TestStreamsThatAreCutFail(t *testing.T) {
	s := play.Script{Tokens: 3, Stamp: true}
	body := string(s.AppendStream(nil, publicModel))
	answer := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n", len(body)/2, body[:len(body)/2])
	for name, end := range map[string]string{"torn": "", "clean end": "0\r\n\r\n"} {
		at := serveBytes(t, answer+end)
		c, err := at.dial(tinyRun().AnswerLimit)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := readStamps(c, at.request(requestBody(s, true, 0)), s.Tokens); err == nil {
			t.Errorf("%s: half of a stream is accepted", name)
		}
	}
}
