package clients

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/connector/clients"
	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// Texts by which a crew knows requests: of Claude Code's check of a subagent, the gateway's check of tool calls, the
// batch, the agent, and its subagents.
var said = []string{
	"You are a security monitor", "You check the tool calls", "One of a batch.", "Divide the work.",
	"Do part 1.", "Do part 2.", "Do part 3.",
}

const monitor, check, batch, main, parts = 0, 1, 2, 3, 3 // the places of texts, and how many subagents there are

// A crew is a model whose agent starts subagents at once, each of which runs a tool. It counts what it is asked.
type crew struct {
	tool, input string // of a subagent

	mu            sync.Mutex
	running, most int
	asked         [7]int // by text
	unknown       int    // requests with none of them
	sent          int    // requests of the agent and its subagents, at the gateway
	behind        [7]int // by text: answers of the batch that had begun when the last one was sent
	waited        int    // answers of the batch that began while one of those waited, in sum
}

// whose returns the place of the text by which a request is known.
func whose(body []byte) int {
	return slices.IndexFunc(said, func(text string) bool { return bytes.Contains(body, []byte(text)) })
}

// front returns a proxy that counts what is sent to a gateway.
func (c *crew) front(t *testing.T, gateway string) (base string) {
	t.Helper()
	to, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // the gateway refuses a part
		r.Body = io.NopCloser(bytes.NewReader(body))
		if who := whose(body); who >= main {
			c.mu.Lock()
			c.sent++
			c.behind[who] = c.asked[batch]
			c.mu.Unlock()
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	return front.URL
}

// reply answers one of the requests at the model server.
func (c *crew) reply(q *upstream.ChatRequest) upstream.Reply {
	var messages []byte
	for _, m := range q.Messages {
		messages = append(messages, m...)
	}
	who := whose(messages)
	c.mu.Lock()
	c.running++
	c.most = max(c.most, c.running)
	if who < 0 {
		c.unknown++
	} else {
		c.asked[who]++
	}
	if who >= main {
		c.waited += c.asked[batch] - c.behind[who]
	}
	c.mu.Unlock()
	time.Sleep(150 * time.Millisecond) // an answer takes time
	c.mu.Lock()
	c.running--
	c.mu.Unlock()
	return c.answer(who, q, bytes.Contains(messages, []byte(`"role":"tool"`)))
}

// answer returns an answer before or after the results of tools.
func (c *crew) answer(who int, q *upstream.ChatRequest, after bool) upstream.Reply {
	switch {
	case who == monitor:
		return upstream.Reply{Text: "<block>no</block>"}
	case who == check:
		var verdicts []string
		for n := range bytes.Count(q.Messages[1], []byte(`{\"call\":`)) {
			verdicts = append(verdicts, fmt.Sprintf(`{"call":%d,"reason":"It reads.","verdict":"allow"}`, n+1))
		}
		return upstream.Reply{Text: `{"verdicts":[` + strings.Join(verdicts, ",") + `]}`}
	case who == main && !after:
		var calls []upstream.Reply
		for _, text := range said[main+1:] {
			calls = append(calls, upstream.Reply{Tool: "Agent", Arguments: fmt.Sprintf(
				`{"description":"a part","prompt":%q,"subagent_type":"general-purpose","run_in_background":false}`, text)})
		}
		calls[0].More = calls[1:]
		return calls[0]
	case who > main && !after:
		return upstream.Reply{Tool: c.tool, Arguments: c.input}
	case who > main && bytes.Contains(q.Tools, []byte(`"SubagentHandback"`)):
		return upstream.Reply{Tool: "SubagentHandback", Arguments: `{"message":"Done."}`}
	}
	return upstream.Reply{Text: answer}
}

// keepBusy has 40 requests of a key waiting, until stop is called.
func keepBusy(t *testing.T, g *harness.Gateway, key string) (stop func()) {
	t.Helper()
	client := g.Client(t, key)
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]}`, model, said[batch])
	for range 40 {
		sending.Go(func() {
			for ctx.Err() == nil {
				a, err := client.Send(client.Request(ctx, t, http.MethodPost, "/v1/chat/completions", body))
				if ctx.Err() == nil && (err != nil || a.Status != http.StatusOK) {
					t.Errorf("the batch: %v, status %d, %s", err, a.Status, a.Body)
					return
				}
			}
		})
	}
	return func() { cancel(); sending.Wait() }
}

// Claude Code's subagents share the only place of a model, with the checks of their tool calls, and go before a batch
// of a low key. None of its requests is sent twice.
func TestTurns(t *testing.T) {
	install(t)
	for _, auto := range []bool{false, true} {
		t.Run(fmt.Sprintf("auto mode %v", auto), func(t *testing.T) {
			c := &crew{tool: "Read"}
			home, command, options := t.TempDir(), " --allowedTools Read Agent", map[string]string{}
			file := filepath.Join(home, "notes.txt")
			write(t, file, "Some notes.\n")
			if c.input = fmt.Sprintf(`{"file_path":%q}`, file); auto {
				c.tool, c.input = "Bash", `{"command":"wc notes.txt","description":"Count the words"}`
				command, options["safeguards"] = " --permission-mode auto", "self"
			}
			g := harness.StartInProcess(t, inprocess.Options{Router: serve.Router{QueueWait: time.Hour}})
			up := upstream.Start(t)
			(&upstream.Windowed{Window: 65536, Count: upstream.Ours(1), Reply: c.reply}).Serve(up, model)
			g.Manage(t, http.MethodPut, "/deployments/"+url.PathEscape(model), map[string]any{
				"connector": g.Connector(t, "box", up.URL).ID, "model": model, "max_concurrency": 1, "options": options,
			}, nil)
			id, low := g.Key(t, "batch", "*")
			g.Manage(t, http.MethodPatch, "/keys/"+id, map[string]string{"priority": "low"}, nil)
			_, key := g.Key(t, "clients", "*")
			v := clients.Values{Base: c.front(t, g.URL), Model: model, Key: key, Window: 65536, Judged: auto}
			claude := clients.All()[slices.IndexFunc(clients.All(), func(c clients.Client) bool { return c.ID == "claude" })]
			write(t, filepath.Join(home, claude.File.Folder, claude.File.Paths[0]), claude.File.Text(v))
			defer keepBusy(t, g, low)()
			up.WaitRunning(t, 1)
			run(t, home, "claude -p '"+said[main]+"'"+command, answer)
			c.expect(t, auto) // before the batch leaves, which the model server may notice late
		})
	}
}

// expect compares what was counted with what a client sends that is never refused.
func (c *crew) expect(t *testing.T, auto bool) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Logf("requests %d, waited for %d answers of the batch: %v", c.asked, c.waited, said)
	asked := 0
	for _, n := range c.asked[main:] {
		asked += n
	}
	const each = 2 // requests of the agent, and of each subagent
	if want := each * (1 + parts); asked != want || c.sent != want {
		t.Errorf("the agents have sent %d requests, and the model has got %d; want %d", c.sent, asked, want)
	}
	if c.most != 1 || c.unknown != 0 {
		t.Errorf("%d requests at once, %d others", c.most, c.unknown)
	}
	if checked := c.asked[check] > parts; checked != auto {
		t.Errorf("%d checks of tool calls", c.asked[check])
	}
	if c.waited > asked { // it is 0, but for answers that begin while a request is on its way to the line
		t.Errorf("%d requests have waited for %d answers of the batch that began after them", asked, c.waited)
	}
}
