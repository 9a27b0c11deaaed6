package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// strictServer answers as vLLM with a window of 32,768 does: the prompt of words and the limit of the answer must fit.
func strictServer(t *testing.T, sent *[]int) func(r *http.Request) *http.Response {
	return func(r *http.Request) *http.Response {
		var body struct {
			MaxTokens int `json:"max_tokens"`
			Messages  []struct{ Content string }
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		const window = 32768
		n := strings.Count(body.Messages[0].Content, " word")
		*sent = append(*sent, body.MaxTokens)
		if n+body.MaxTokens <= window {
			return upstreamAnswer("application/json", strings.NewReader(completionOf("hi")), -1)
		}
		refusal := fmt.Sprintf(`{"error":{"message":"This model's maximum context length is %d tokens. However, you `+
			`requested %d output tokens and your prompt contains at least %d input tokens, for a total of at least %d `+
			`tokens."}}`,
			window, body.MaxTokens, window-body.MaxTokens+1, window+1)
		response := upstreamAnswer("application/json", strings.NewReader(refusal), -1)
		response.StatusCode = http.StatusBadRequest
		return response
	}
}

// downTunnel is a tunnel whose model server cannot be reached by the first request.
type downTunnel struct {
	Tunnel
	up bool
}

func (d *downTunnel) Send(r *http.Request, key string) (*http.Response, error) {
	if !d.up {
		d.up = true
		return nil, link.ErrUpstreamDown
	}
	return d.Tunnel.Send(r, key)
}

// A fallback with the same window gets a limit that fits, too.
func TestFallbackInSmallWindow(t *testing.T) {
	g := newWindowGateway(t)
	d := g.deployment()
	other := d
	other.Name = "m2"
	if _, err := g.backend.Store.SetDeployment(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	g.set(t, func(d *store.Deployment) { d.Fallback = "m2" })
	id := d.Connectors[0]
	g.online(id, 32768)
	r := g.routes[id]
	r.Strict = true
	g.routes[id] = r
	g.connectOne(store.DefaultAccount, id, &downTunnel{Tunnel: connectorTunnel{fakeTunnel{g.testGateway}, g, id}})
	var sent []int
	g.answer = strictServer(t, &sent)
	w := g.post("/v1/messages", `{"model":"m","max_tokens":32000,"messages":[{"role":"user","content":"`+
		wordsOf(17000)+`"}]}`)
	if w.Code != http.StatusOK || w.Header().Get(servedBy) != "m2" || len(sent) != 1 || sent[0] == 32000 {
		t.Errorf("%d %v %.300s, sent with %v", w.Code, w.Header(), w.Body, sent)
	}
}
