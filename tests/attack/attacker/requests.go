//go:build linux

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A costly request is cheap to send and expensive to answer.
type costly struct {
	path, body string
	slowReader bool // the client reads the answer at 10 KB/s
	slowBody   bool // the declared body is large and arrives at 400 bytes per second
	leaves     bool // the client disconnects after a second
}

// Paths of the dialects.
const chat, messages, responses = "/v1/chat/completions", "/v1/messages", "/v1/responses"

// costlyRequests returns the requests of each attack.
var costlyRequests = map[string]func() []costly{
	"system messages": func() []costly {
		return []costly{
			counted("bulk", many(40_000, `{"role":"system","content":"a"}`)),
			{path: responses + "/input_tokens", body: fmt.Sprintf(
				`{"model":"bulk","input":[{"role":"user","content":"x"},%s]}`, many(40_000, `{"role":"developer","content":"a"}`))},
		}
	},
	"calls": func() []costly {
		return []costly{counted("bulk",
			fmt.Sprintf(`{"role":"assistant","content":[%s]}`,
				many(80_000, `{"type":"tool_use","id":"t","name":"f","input":{}}`)))}
	},
	"a model out of reach": func() []costly {
		c := counted("does-not-exist", many(40_000, `{"role":"system","content":"a"}`))
		c.leaves = true
		return []costly{c}
	},
	"white space": func() []costly {
		return []costly{counted("bulk", fmt.Sprintf(`{"role":"user","content":%q}`, strings.Repeat(" \n", 1<<20)))}
	},
	"items": func() []costly {
		return []costly{{
			path: responses + "/input_tokens",
			body: fmt.Sprintf(`{"model":"bulk","input":[%s]}`, many(8<<20/3, "{}")),
		}}
	},
	"endless streams": func() []costly { return inAll("event", true, "x") },
	"endless answers": func() (all []costly) {
		for _, model := range []string{"json", "line", "header", "informational", "error", "call"} {
			all = slices.Concat(all, inAll(model, false, "x"), inAll(model, true, "x"))
		}
		for i := range all {
			all[i].leaves = true
		}
		return all
	},
	"whole answers":  func() []costly { return inAll("large", false, "x") },
	"waiting bodies": func() []costly { return inAll("bulk", false, strings.Repeat("x", 30<<20)) },
	"slow readers": func() []costly {
		all := inAll("large", false, "x")
		for i := range all {
			all[i].slowReader = true
		}
		return all
	},
	"slow bodies": func() []costly {
		all := inAll("bulk", false, "x")
		for i := range all {
			all[i].slowBody = true
		}
		return all
	},
	"heads": func() []costly { return inAll("heads", false, "x") },
}

// many returns a list of n elements.
func many(n int, element string) string {
	return strings.TrimSuffix(strings.Repeat(element+",", n), ",")
}

// counted returns a request that counts the tokens of messages.
func counted(model, list string) costly {
	return costly{
		path: messages + "/count_tokens",
		body: fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"x"},%s]}`, model, list),
	}
}

// inAll returns a request with a text in each dialect.
func inAll(model string, stream bool, text string) []costly {
	return []costly{
		{path: responses, body: fmt.Sprintf(`{"model":%q,"stream":%t,"input":%q}`, model, stream, text)},
		{path: messages, body: fmt.Sprintf(`{"model":%q,"stream":%t,"max_tokens":9,`+
			`"messages":[{"role":"user","content":%q}]}`, model, stream, text)},
		{path: chat, body: fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":%q}]}`, model,
			stream, text)},
	}
}

// costing returns an attack whose clients send compressed requests in parallel.
func costing(name string) attack {
	return func(ctx context.Context, g *target) string {
		const clients = 40
		requests := costlyRequests[name]()
		bodies := make([][]byte, len(requests))
		for i, c := range requests {
			var b bytes.Buffer
			w, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is valid
			_, _ = io.WriteString(w, c.body)                // writes to memory succeed
			_ = w.Close()
			bodies[i] = b.Bytes()
		}
		client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
		var count tally
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				for ctx.Err() == nil {
					if status := requests[i%len(requests)].send(ctx, client, g, bodies[i%len(requests)]); status != 0 {
						count.add(strconv.Itoa(status), 1)
					}
					time.Sleep(pace)
				}
			})
		}
		all.Wait()
		return fmt.Sprint(count.frames)
	}
}

// send sends the request with its compressed body and reads the answer. It returns the status, or 0 without an
// answer.
func (c costly) send(ctx context.Context, client *http.Client, g *target, body []byte) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.leaves {
		defer time.AfterFunc(time.Second, cancel).Stop()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL+c.path, bytes.NewReader(body))
	if err != nil {
		return 0
	}
	r.Header.Set("Authorization", "Bearer "+g.Key)
	if c.slowBody {
		r.Body, r.ContentLength = io.NopCloser(&drip{ctx: ctx}), 30<<20
	} else {
		r.Header.Set("Content-Encoding", "gzip")
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0 // canceled
	}
	defer answer.Body.Close()
	for c.slowReader && err == nil {
		if _, err = io.CopyN(io.Discard, answer.Body, 1000); err == nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
	_, _ = io.Copy(io.Discard, answer.Body) // until its end or an error
	return answer.StatusCode
}

// drip is a body of white space: first 8 KiB, then 4 KiB every 10 s.
type drip struct {
	ctx   context.Context
	begun bool
}

func (d *drip) Read(p []byte) (int, error) {
	if d.begun {
		select {
		case <-d.ctx.Done():
			return 0, d.ctx.Err()
		case <-time.After(10 * time.Second):
		}
		p = p[:4<<10] // net/http sends this much at a time
	} else {
		p = p[:8<<10]
	}
	d.begun = true
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
