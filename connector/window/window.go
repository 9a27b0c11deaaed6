// Package window reads the context window of a model from the answers of its server: from
// refusals of prompts that are too long, and from the answer to one prompt that measures it.
package window

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// Max bounds a context window in tokens. Larger numbers are not windows.
const Max = 100_000_000

// Remedy is what helps if a server cuts prompts.
const Remedy = "if it is Ollama, set OLLAMA_CONTEXT_LENGTH there to a larger number"

// letters are the words of the measuring prompt, 1.2 MB. Each is a token in common vocabularies.
const letters = 600_000

// minCut is the smallest count of a cut prompt. Servers with smaller ones do not count.
const minCut = 256

// measuredText is the window in a refusal of [Prompt], at any level of nested errors.
var measuredText = regexp.MustCompile(
	`(?i)(?:"n_ctx\\*": *|\bn_ctx(?:: | \()|context length (?:is|of|only supports)(?: only)? |` +
		"context (?:length|size) \\(|model length of |max_seq_len |" +
		"max_new_tokens` must be <= |`inputs` must have less than )(\\d+)")

// Prompt returns the body of a chat request that measures the window of a model. Its prompt
// exceeds most windows, and asks for one token.
func Prompt(model string) []byte {
	text := strings.Repeat("a b c d e f g h i j ", letters/10)
	body, _ := json.Marshal(map[string]any{ // strings and numbers are always JSON
		"model": model, "max_tokens": 1, "messages": []any{map[string]string{"role": "user", "content": text}},
	})
	return body
}

// Result is what the answer to [Prompt] shows.
type Result struct {
	Window  int64 // in tokens; 0: the answer does not show it
	Cuts    bool  // the server cuts longer prompts instead of refusing them
	AtLeast bool  // the server accepted the whole prompt: the window is not smaller
}

// Read reads the answer to [Prompt].
func Read(status int, body []byte) Result {
	if status != http.StatusOK {
		if m := measuredText.FindSubmatch(body); m != nil {
			return Result{Window: Tokens(m[1])}
		}
		return Result{}
	}
	var answer struct {
		Usage struct {
			Prompt json.RawMessage `json:"prompt_tokens"`
		}
	}
	_ = json.Unmarshal(body, &answer) // an invalid answer has no usage
	switch prompt := Tokens(answer.Usage.Prompt); {
	case prompt < minCut:
		return Result{}
	case prompt >= letters/2:
		return Result{Window: prompt, AtLeast: true}
	default: // Ollama keeps the last half of the window and four tokens, and counts half and two
		return Result{Window: 2 * (prompt - 2), Cuts: true}
	}
}

// String describes the result.
func (r Result) String() string {
	switch {
	case r.Window == 0:
		return "the answer does not show the context window"
	case r.Cuts:
		return fmt.Sprintf("the context window has %d tokens; the server cuts longer prompts and reports no error", r.Window)
	case r.AtLeast:
		return fmt.Sprintf("the context window has at least %d tokens; the server accepts the longest prompt of this test",
			r.Window)
	default:
		return fmt.Sprintf("the context window has %d tokens; the server refuses longer prompts", r.Window)
	}
}
