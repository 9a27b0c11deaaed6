package tests

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/llama"
)

// rerank asks the real model for the order of two documents.
const rerank = `{"model":"org/tiny:1","query":"hello","documents":["one hello","two more"],"top_n":1}`

// A real server for chats answers that it neither ranks nor listens.
func testNotSupported(t *testing.T, c *harness.Client) {
	for _, test := range []struct{ path, body, header, want string }{
		{"/v1/rerank", rerank, "Content-Type: application/json", "answered HTTP 501: This server does not support reranking"},
		{
			"/v1/audio/transcriptions", form("file", "org/tiny:1"), formHeader,
			"answered HTTP 501: The current model does not support audio",
		},
	} {
		a := c.Do(t, http.MethodPost, test.path, test.body, test.header)
		if a.Status != http.StatusBadGateway || !strings.Contains(a.Body, test.want) {
			t.Errorf("%s: status %d, %s", test.path, a.Status, a.Body)
		}
	}
}

// A real server ranks and embeds.
func TestLlamaRerank(t *testing.T) {
	t.Parallel()
	_, c, _ := llamaRig(t, llama.Options{Slots: 2, Flags: []string{"--reranking"}})
	for _, path := range []string{"/v1/rerank", "/v1/reranking"} {
		a := c.Do(t, http.MethodPost, path, rerank)
		var got struct {
			Model   string
			Results []struct {
				Index int
				Score *float64 `json:"relevance_score"`
			}
			Usage struct {
				Prompt int `json:"prompt_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(a.Body), &got); err != nil || a.Status != 200 || got.Model != "org/tiny:1" ||
			len(got.Results) != 1 || got.Results[0].Score == nil || got.Usage.Prompt == 0 {
			t.Errorf("%s: status %d, %v, %s", path, a.Status, err, a.Body)
		}
	}
}

func TestLlamaEmbeddings(t *testing.T) {
	t.Parallel()
	_, c, _ := llamaRig(t, llama.Options{Slots: 2, Flags: []string{"--embeddings", "--pooling", "mean"}})
	a := c.Do(t, http.MethodPost, "/v1/embeddings", `{"model":"org/tiny:1","input":["hello","two more"]}`)
	var got struct {
		Model string
		Data  []struct{ Embedding []float64 }
	}
	if err := json.Unmarshal([]byte(a.Body), &got); err != nil || a.Status != 200 || got.Model != "org/tiny:1" ||
		len(got.Data) != 2 || len(got.Data[0].Embedding) == 0 {
		t.Errorf("status %d, %v, %s", a.Status, err, clip(a.Body))
	}
}
