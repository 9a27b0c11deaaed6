package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// An upstream is a scripted model server, in a process of its own so that it
// can be killed.
type upstream struct {
	mu      sync.Mutex
	running int
	seen    []int64 // ids of requests since the last report
}

// upstreamReport is what an upstream tells of itself at reportPath.
type upstreamReport struct {
	Running int     `json:"running"`
	Seen    []int64 `json:"seen"`
}

const reportPath = "/report"

// serveUpstream serves at an address until the process is killed.
func serveUpstream(address string, announce io.Writer) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	u := &upstream{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", u.chat)
	mux.HandleFunc("GET "+reportPath, u.report)
	fmt.Fprintln(announce, l.Addr())
	return http.Serve(l, mux)
}

func (u *upstream) report(w http.ResponseWriter, _ *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	_ = json.NewEncoder(w).Encode(upstreamReport{u.running, u.seen}) // who asks notices what is missing
	u.seen = nil
}

// enter counts a request; leave counts it off.
func (u *upstream) enter(id int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.running++
	u.seen = append(u.seen, id)
}

func (u *upstream) leave() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.running--
}

func (u *upstream) chat(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has left
	}
	var q struct {
		Model   string `json:"model"`
		Stream  bool   `json:"stream"`
		Options struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	err = json.Unmarshal(body, &q)
	s, scriptErr := findScript(body)
	if err != nil || scriptErr != nil {
		fail(w, http.StatusBadRequest, "the scripted model server does not understand the request")
		return
	}
	u.enter(s.ID)
	defer u.leave()
	p := &performance{script: s, model: q.Model, usage: q.Options.Usage, w: w, r: r}
	p.wait(s.First)
	switch {
	case s.End == fails500:
		fail(w, http.StatusInternalServerError, "the slot state was lost")
	case q.Stream:
		p.stream()
	default:
		p.whole()
	}
}

// fail answers with an error as llama-server does.
func fail(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%d,"message":%s,"type":"server_error"}}`, status, quote(message))
}

// A performance is a script being played.
type performance struct {
	script
	model string
	usage bool
	w     http.ResponseWriter
	r     *http.Request
}

// wait waits, but not for a client that has left: that ends the handler.
func (p *performance) wait(d time.Duration) {
	select {
	case <-p.r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-time.After(d):
	}
}

// whole answers in one piece, after the time that the tokens take.
func (p *performance) whole() {
	p.wait(time.Duration(p.Tokens) * p.Pace)
	if p.End == dies {
		panic(http.ErrAbortHandler)
	}
	message, finish := `"content":`+quote(p.text()), "stop"
	if p.Tool {
		message = fmt.Sprintf(`"content":null,"tool_calls":[{"id":"call_%d","type":"function","function":{"name":%s,"arguments":%s}}]`,
			p.ID, quote(toolName), quote(p.arguments()))
		finish = "tool_calls"
	}
	p.w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(p.w, `{"id":"chatcmpl-%d","object":"chat.completion","created":1700000000,"model":%s,"choices":[{"index":0,"message":{"role":"assistant",%s},"finish_reason":%s}],"usage":%s}`,
		p.ID, quote(p.model), message, quote(finish), p.tokens())
}

func (p *performance) tokens() string {
	return fmt.Sprintf(`{"prompt_tokens":20,"completion_tokens":%d,"total_tokens":%d}`, p.Tokens, p.Tokens+20)
}

// stream answers token by token.
func (p *performance) stream() {
	p.w.Header().Set("Content-Type", "text/event-stream")
	finish := "stop"
	p.chunk(`[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]`, "")
	if p.Tool {
		finish = "tool_calls"
		p.chunk(fmt.Sprintf(`[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_%d","type":"function","function":{"name":%s,"arguments":""}}]},"finish_reason":null}]`,
			p.ID, quote(toolName)), "")
	}
	for i, piece := range p.pieces() {
		p.wait(p.Pace)
		if p.End == dies && i == p.Tokens/2 {
			panic(http.ErrAbortHandler)
		}
		delta := `{"content":` + quote(piece) + `}`
		if p.Tool {
			delta = `{"tool_calls":[{"index":0,"function":{"arguments":` + quote(piece) + `}}]}`
		}
		p.chunk(`[{"index":0,"delta":`+delta+`,"finish_reason":null}]`, "")
	}
	p.chunk(`[{"index":0,"delta":{},"finish_reason":`+quote(finish)+`}]`, "")
	if p.usage {
		p.chunk("[]", `,"usage":`+p.tokens())
	}
	p.send("data: [DONE]\n\n")
}

func (p *performance) chunk(choices, more string) {
	p.send(fmt.Sprintf(`data: {"id":"chatcmpl-%d","object":"chat.completion.chunk","created":1700000000,"model":%s,"choices":%s%s}`+"\n\n",
		p.ID, quote(p.model), choices, more))
}

// send writes one event at once. A client that has left ends the handler.
func (p *performance) send(event string) {
	if _, err := io.Copy(p.w, strings.NewReader(event)); err != nil {
		panic(http.ErrAbortHandler)
	}
	p.w.(http.Flusher).Flush() // net/http's writers have it
}
