package manage_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// request has the fields of a request to a model server that tests read.
type request struct {
	Model         string `json:"model"`
	MaxTokens     int    `json:"max_tokens"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Tools []struct {
		Type     string `json:"type"`
		Function struct {
			Name       string         `json:"name"`
			Parameters map[string]any `json:"parameters"`
		} `json:"function"`
	} `json:"tools"`
	ToolChoice string `json:"tool_choice"`
}

// server is a model server: speak answers the completion, tool the request with a
// tool.
type server struct {
	t           *testing.T
	speak, tool http.HandlerFunc
}

func (s server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q request
	dec := json.NewDecoder(r.Body)
	if err := dec.Decode(&q); err != nil || r.Method != "POST" || r.URL.Path != "/v1/chat/completions" ||
		r.Header.Get("Content-Type") != "application/json" {
		s.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	if q.Model != "upstream-model" || q.MaxTokens < 1 || q.MaxTokens > 512 {
		s.t.Errorf("request = %+v", q)
	}
	if !q.Stream || !q.StreamOptions.IncludeUsage {
		s.t.Errorf("request = %+v", q)
	}
	if len(q.Tools) == 0 {
		s.speak(w, r)
		return
	}
	if len(q.Tools) != 1 || q.Tools[0].Function.Name != "get_weather" || q.ToolChoice != "auto" {
		s.t.Errorf("request = %+v", q)
	}
	s.tool(w, r)
}

// events answers with a stream of events; "wait" sleeps for 100 ms, "abort" closes
// the connection.
func events(list ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for _, e := range list {
			switch e {
			case "wait":
				time.Sleep(100 * time.Millisecond)
			case "abort":
				abort()
			default:
				_, _ = io.WriteString(w, "data: "+e+"\r\n\r\n")
			}
		}
	}
}

const (
	role  = `{"choices":[{"delta":{"role":"assistant","content":""}}]}`
	hello = `{"choices":[{"delta":{"content":"Hel"}}]}`
	more  = `{"choices":[{"delta":{"content":"lo\n\u001b[31m"}}]}`
	think = `{"choices":[{"delta":{"reasoning_content":"hm"}}]}`
	stop  = `{"choices":[{"delta":{},"finish_reason":"stop"}]}`
	usage = `{"choices":[],"usage":{"completion_tokens":11}}`
	done  = `[DONE]`
)

// call answers with a tool call.
func call(name, arguments string) http.HandlerFunc {
	text, _ := json.Marshal(arguments)
	return answer(200, "application/json", fmt.Sprintf(
		`{"choices":[{"message":{"content":null,"tool_calls":[{"type":"function","function":{"name":%q,"arguments":%s}}]},`+
			`"finish_reason":"tool_calls"}]}`, name, text))
}

var goodCall = call("get_weather", `{"city":"Paris"}`)

// try tests a deployment on a server.
func try(t *testing.T, s server) manage.TestResult {
	t.Helper()
	g := newGateway(t)
	s.t = t
	home := g.connector("default", "home", map[string]http.Handler{"ollama": s})
	g.deployment("public", home, "", "upstream-model")
	return want[manage.TestResult](g, 200, "POST", "/deployments/public/test", "{}")
}
