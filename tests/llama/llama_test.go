package llama_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/llama"
	"github.com/postern-dev/postern/tests/llama/tinymodel"
)

// The other tests rely on what the model says: check it at the source.
func TestScripts(t *testing.T) {
	s := llama.Start(t, llama.Options{})
	for prompt, want := range map[string]string{
		"hello":       tinymodel.Answer,
		"[[unicode]]": tinymodel.Unicode,
		"[[sse]]":     tinymodel.SSE,
	} {
		body := `{"temperature":0,"messages":[{"role":"user","content":` + quote(prompt) + `}]}`
		resp, err := http.Post(s.URL+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Choices []struct {
				Message      struct{ Content string }
				FinishReason string `json:"finish_reason"`
			}
		}
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if len(answer.Choices) != 1 || answer.Choices[0].Message.Content != want || answer.Choices[0].FinishReason != "stop" {
			t.Errorf("%s: got %+v", prompt, answer)
		}
	}
	if n, err := s.Busy(t.Context()); err != nil || n != 0 {
		t.Errorf("busy slots: %d, %v", n, err)
	}
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}
