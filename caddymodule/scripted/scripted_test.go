package scripted

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// toolCall is a call of a tool, or a part of one in a stream.
type toolCall struct {
	ID, Type string
	Function struct{ Name, Arguments string }
}

// message is a whole message or a part of one.
type message struct {
	Role      string
	Content   *string
	ToolCalls []toolCall `json:"tool_calls"`
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// answer is a whole answer or a chunk of a stream.
type answer struct {
	ID, Object, Model string
	Created           int64
	Choices           []struct {
		Message, Delta *message
		FinishReason   *string `json:"finish_reason"`
	}
	Usage *usage
}

// serve answers one request without delays.
func serve(t *testing.T, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	m := New(0)
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

func into[T any](t *testing.T, data []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("decoding %s: %v", data, err)
	}
	return v
}

// streamed splits a stream into its events and checks that it ends with [DONE].
func streamed[T any](t *testing.T, w *httptest.ResponseRecorder) []T {
	t.Helper()
	if got := w.Header().Get("Content-Type"); got != "text/event-stream" {
		t.Fatalf("Content-Type %q, body %s", got, w.Body)
	}
	events := strings.Split(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n")
	if last := events[len(events)-1]; last != "data: [DONE]" {
		t.Fatalf("the stream ends with %q", last)
	}
	var out []T
	for _, event := range events[:len(events)-1] {
		data, ok := strings.CutPrefix(event, "data: ")
		if !ok {
			t.Fatalf("event %q", event)
		}
		out = append(out, into[T](t, []byte(data)))
	}
	return out
}

func TestModels(t *testing.T) {
	const want = `"id":"scripted","object":"model","owned_by":"postern"}],"object":"list"}`
	if got := serve(t, "GET", "/v1/models", "").Body.String(); !strings.Contains(got, want) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestErrors(t *testing.T) {
	tests := []struct {
		name, method, path, body string
		status                   int
		message, param           string
	}{
		{"no messages", "POST", "/v1/chat/completions", `{}`, 400, "messages must have at least one message.", "messages"},
		{
			"several answers", "POST", "/v1/chat/completions", `{"n":2,"messages":[{"role":"user"}]}`, 400,
			"This model returns a single answer: n must be 1.", "n",
		},
		{
			"no tokens", "POST", "/v1/chat/completions", `{"max_tokens":-1,"messages":[{"role":"user"}]}`, 400,
			"max_tokens must be at least 1.", "max_tokens",
		},
		{
			"wrong type", "POST", "/v1/chat/completions", `{"stream":"yes"}`, 400,
			"The request body is not valid: json: cannot unmarshal string into Go struct field chatRequest.stream of type " +
				"bool.", "",
		},
		{
			"no JSON", "POST", "/v1/chat/completions", `hello`, 400,
			"The request body is not valid: invalid character 'h' looking for beginning of value.", "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := serve(t, tt.method, tt.path, tt.body)
			got := into[struct {
				Error struct {
					Message, Type string
					Param         *string
				}
			}](t, w.Body.Bytes()).Error
			param := ""
			if got.Param != nil {
				param = *got.Param
			}
			if w.Code != tt.status || got.Message != tt.message || param != tt.param || got.Type != "invalid_request_error" {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
}

func TestChatSaysThatItIsScripted(t *testing.T) {
	w := serve(t, "POST", "/v1/chat/completions",
		`{"model":"x","messages":[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text",`+
			`"text":"hello  there"},{"type":"image_url"}]}]}`)
	got := into[answer](t, w.Body.Bytes())
	choice := got.Choices[0]
	text := *choice.Message.Content
	if !strings.HasPrefix(text, "I am Postern's built-in scripted model, not a real one.") ||
		!strings.Contains(text, "You wrote: “hello there”.") {
		t.Errorf("text %q", text)
	}
	if *choice.FinishReason != "stop" || got.Model != ModelID || got.Object != "chat.completion" || got.Created == 0 {
		t.Errorf("got %s", w.Body)
	}
	if got.Usage.PromptTokens != 4 || got.Usage.CompletionTokens != len(tokens(text)) ||
		got.Usage.TotalTokens != 4+len(tokens(text)) {
		t.Errorf("usage %+v", got.Usage)
	}
}

func TestChatStreamEqualsWhole(t *testing.T) {
	const body = `"messages":[{"role":"user","content":"grüß dich"}],"max_completion_tokens":30`
	whole := into[answer](t, serve(t, "POST", "/v1/chat/completions", `{`+body+`}`).Body.Bytes())
	chunks := streamed[answer](t,
		serve(t, "POST", "/v1/chat/completions", `{"stream":true,"stream_options":{"include_usage":true},`+body+`}`))

	usageChunk, finishChunk := chunks[len(chunks)-1], chunks[len(chunks)-2]
	if len(usageChunk.Choices) != 0 || *usageChunk.Usage != *whole.Usage {
		t.Errorf("usage chunk %+v, want %+v", usageChunk, whole.Usage)
	}
	if finish := finishChunk.Choices[0].FinishReason; finish == nil || *finish != "length" ||
		*whole.Choices[0].FinishReason != "length" {
		t.Errorf("finish chunk %+v", finishChunk)
	}
	if chunks[0].Choices[0].Delta.Role != "assistant" {
		t.Errorf("first chunk %+v", chunks[0])
	}
	text := ""
	for i, chunk := range chunks[:len(chunks)-2] {
		if chunk.ID != chunks[0].ID || chunk.Object != "chat.completion.chunk" || chunk.Usage != nil ||
			chunk.Choices[0].FinishReason != nil {
			t.Errorf("chunk %d: %+v", i, chunk)
		}
		text += *chunk.Choices[0].Delta.Content
	}
	if text != *whole.Choices[0].Message.Content {
		t.Errorf("streamed %q\nwhole    %q", text, *whole.Choices[0].Message.Content)
	}
	if len(chunks) != 1+30+2 {
		t.Errorf("%d chunks for 30 tokens", len(chunks))
	}
}

func TestChatWithoutUsageChunk(t *testing.T) {
	for _, chunk := range streamed[answer](t,
		serve(t, "POST", "/v1/chat/completions", `{"stream":true,"messages":[{"role":"user"}]}`)) {
		if len(chunk.Choices) != 1 || chunk.Usage != nil {
			t.Errorf("chunk %+v", chunk)
		}
	}
}

func TestChatStops(t *testing.T) {
	w := serve(t, "POST", "/v1/chat/completions", `{"stop":["scripted","built"],"messages":[{"role":"user"}]}`)
	choice := into[answer](t, w.Body.Bytes()).Choices[0]
	if *choice.Message.Content != "I am Postern's " || *choice.FinishReason != "stop" {
		t.Errorf("got %q %s", *choice.Message.Content, *choice.FinishReason)
	}
}

const weatherTool = `{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":` +
	`{"city":{"type":"string"},"days":{"type":["integer","null"]},"unit":{"enum":["c","f"]},"exact":{"type":"boolean"},` +
	`"unused":{"type":"string"},"any":true},` +
	`"required":["city","days","unit","exact","any"]}}}`

// claudeText returns the last message of a request of Claude Code, which names all of its tools, as the gateway
// passes it on.
func claudeText(prompt string) string {
	return `<system-reminder>\nAttribution for commits you create from here on:\n- End them with:\nCo-Authored-By: ` +
		`Claude Code <noreply@example.com>\n</system-reminder>\n\n` + prompt + `\n\n<system-reminder>\n# Environment\n` +
		` - Platform: linux\n\nAvailable agent types for get_weather:\nCall get_weather with a <name> of these. ` +
		`Call the tool get_weather to start one.\n</system-reminder>`
}

func TestAgentsTextIsNotQuoted(t *testing.T) {
	w := serve(t, "POST", "/v1/chat/completions", `{"messages":[{"role":"user","content":"`+claudeText("say hello")+`"}]}`)
	text := *into[answer](t, w.Body.Bytes()).Choices[0].Message.Content
	if !strings.Contains(text, "You wrote: “say hello”. ") {
		t.Errorf("text %q", text)
	}
}

func TestChatCallsTools(t *testing.T) {
	const arguments = `{"any":{},"city":"example","days":1,"exact":true,"unit":"c"}`
	tests := []struct {
		name, choice, role, text string
		called                   bool
	}{
		{"named by the user", `"auto"`, "user", "please call get_weather now", true},
		{"as the console asks", `"auto"`, "user", "How is it in Paris? Call the tool get_weather to find out.", true},
		{"not asked for", `"auto"`, "user", "hello", false},
		{"only mentioned", `"auto"`, "user", "Do not call get_weather. What does get_weather do?", false},
		{"another name", `"auto"`, "user", "Call get_weather_2.", false},
		{"named by the agent", `"auto"`, "user", claudeText("say hello"), false},
		{"named by the user of an agent", `"auto"`, "user", claudeText("Call get_weather."), true},
		{"required", `"required"`, "user", "hello", true},
		{"named by the request", `{"type":"function","function":{"name":"get_weather"}}`, "user", "hello", true},
		{"another one named", `{"type":"function","function":{"name":"other"}}`, "user", "hello", false},
		{"forbidden", `"none"`, "user", "call get_weather", false},
		{"already answered", `"auto"`, "tool", "get_weather says rain", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			body := `"tools":[` + weatherTool + `],"tool_choice":` + tt.choice + `,"messages":[{"role":"` + tt.role +
				`","content":"` + tt.text + `"}]}`
			choice := into[answer](t, serve(t, "POST", "/v1/chat/completions", `{`+body).Body.Bytes()).Choices[0]
			if called := len(choice.Message.ToolCalls) == 1; called != tt.called ||
				called != (*choice.FinishReason == "tool_calls") {
				t.Fatalf("got %+v, finish %s", choice.Message, *choice.FinishReason)
			}
			if !tt.called {
				return
			}
			call := choice.Message.ToolCalls[0]
			if call.ID == "" || call.Type != "function" || call.Function.Name != "get_weather" ||
				call.Function.Arguments != arguments {
				t.Errorf("call %+v", call)
			}
			var got toolCall
			for _, chunk := range streamed[answer](t, serve(t, "POST", "/v1/chat/completions", `{"stream":true,`+body)) {
				for _, fragment := range chunk.Choices[0].Delta.ToolCalls {
					got.ID += fragment.ID
					got.Function.Name += fragment.Function.Name
					got.Function.Arguments += fragment.Function.Arguments
				}
			}
			if !strings.HasPrefix(got.ID, "call_") || got.Function.Name != "get_weather" || got.Function.Arguments != arguments {
				t.Errorf("streamed call %+v", got)
			}
		})
	}
}

func TestToolAnswerIsQuoted(t *testing.T) {
	w := serve(t, "POST", "/v1/chat/completions",
		`{"messages":[{"role":"tool","content":"`+strings.Repeat("é", quoteRunes+5)+`"}]}`)
	text := *into[answer](t, w.Body.Bytes()).Choices[0].Message.Content
	if !strings.Contains(text, "The tool answered: “"+strings.Repeat("é", quoteRunes)+"…”. ") {
		t.Errorf("text %q", text)
	}
}

// TestTokensTakeTime checks the rhythm of a stream with a fake clock.
func TestTokensTakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New(TokenDelay)
		start := time.Now()
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions",
			strings.NewReader(`{"stream":true,"max_tokens":10,"messages":[{"role":"user"}]}`)))
		if took := time.Since(start); took != 200*time.Millisecond {
			t.Errorf("10 tokens took %v", took)
		}
	})
}

// TestStopsWhenTheClientGoes counts on the handler's return, for each way to
// ask: a generation that goes on would take minutes.
func TestStopsWhenTheClientGoes(t *testing.T) {
	for _, body := range []string{
		`{"messages":[{"role":"user"}]}`,
		`{"messages":[{"role":"user"}],"stream":true}`,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			m := New(time.Hour)
			returned := make(chan struct{})
			go func() {
				defer close(returned)
				r := httptest.NewRequestWithContext(ctx, "POST", "/v1/chat/completions", strings.NewReader(body))
				m.ServeHTTP(httptest.NewRecorder(), r)
			}()
			synctest.Wait()
			start := time.Now()
			cancel()
			<-returned
			if took := time.Since(start); took != 0 {
				t.Errorf("it went on for %v", took)
			}
		})
	}
}

// TestStreamIsFlushed reads the first event over a real connection while the
// model is still far from the end.
func TestStreamIsFlushed(t *testing.T) {
	server := httptest.NewServer(New(time.Hour))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/chat/completions",
		strings.NewReader(`{"stream":true,"messages":[{"role":"user"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	line, err := bufio.NewReader(answer.Body).ReadString('\n')
	if err != nil || !strings.Contains(line, `"role":"assistant"`) {
		t.Errorf("first line %q, %v", line, err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, answer.Body); err == nil {
		t.Error("the canceled stream ended cleanly")
	}
}

func FuzzChat(f *testing.F) {
	f.Add(`{"messages":[{"role":"user","content":"hi"}]}`)
	f.Add(`{"stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}],"stop":"x"}`)
	f.Add(`{"tools":[` + weatherTool + `],"tool_choice":"required","messages":[{"role":"user","content":null}]}`)
	f.Fuzz(func(t *testing.T, body string) {
		m := New(0)
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body)))
		if w.Code != 200 && w.Code != 400 {
			t.Fatalf("status %d for %q", w.Code, body)
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("answer %q for %q", w.Body, body)
		}
	})
}

// A request that is not a chat gets an error that names a server for it.
func TestChatOnly(t *testing.T) {
	for _, path := range []string{"/v1/embeddings", "/v1/completions"} {
		w := serve(t, http.MethodPost, path, `{"model":"scripted","input":"a","prompt":"a"}`)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "Start a real model server") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
