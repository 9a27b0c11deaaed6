package tokenizers

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
)

// A message of a chat request.
type message struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content,omitempty"`
	Calls     []any  `json:"tool_calls,omitempty"`
	Result    string `json:"tool_call_id,omitempty"`
}

// A prompt as clients send it.
type prompt struct {
	kind     string
	Messages []message `json:"messages"`
	Tools    []any     `json:"tools,omitempty"`
}

// ours returns the prompt as the gateway has it.
func (p prompt) ours() *tokens.Prompt {
	messages, _ := json.Marshal(p.Messages) // such values are valid
	tools, _ := json.Marshal(p.Tools)
	return tokens.NewPrompt(func() ([]byte, []byte) { return messages, tools })
}

// beginning returns an earlier prompt of the conversation, the nth, without messages if there is none.
func (p prompt) beginning(n int) prompt {
	end := n % len(p.Messages)
	for end > 0 && p.Messages[end-1].Role != "user" && p.Messages[end-1].Role != "tool" {
		end--
	}
	p.Messages = p.Messages[:end]
	return p
}

// shapes are the kinds of conversations; each returns one with about n bytes of text.
var shapes = map[string]func(rnd *rand.Rand, text source, n int) prompt{
	"question": func(rnd *rand.Rand, text source, n int) prompt {
		return prompt{Messages: []message{{Role: "user", Content: text(rnd, n)}}}
	},
	"turns": func(rnd *rand.Rand, text source, n int) prompt {
		p := prompt{Messages: []message{{Role: "system", Content: text(rnd, n/10)}}}
		for size := 50 + rnd.IntN(1000); n > 0; n -= 2 * size {
			p.Messages = append(p.Messages, message{Role: "user", Content: text(rnd, size)},
				message{Role: "assistant", Content: text(rnd, size), Reasoning: text(rnd, size)})
		}
		p.Messages = append(p.Messages, message{Role: "user", Content: "Go on."})
		return p
	},
	"agent": func(rnd *rand.Rand, text source, n int) prompt {
		p := prompt{Tools: schemas(rnd, 1+rnd.IntN(4)), Messages: []message{
			{Role: "system", Content: text(rnd, n/5)}, {Role: "user", Content: text(rnd, n/20)},
		}}
		for i, size := 0, 300+rnd.IntN(1500); n > 0; i, n = i+1, n-size {
			arguments, _ := json.Marshal(map[string]any{"path": "/src/main.go", "text": text(rnd, size/3)})
			id := fmt.Sprint("call_", i)
			p.Messages = append(p.Messages, message{Role: "assistant", Calls: []any{map[string]any{
				"id": id, "type": "function", "function": map[string]any{"name": "look_up", "arguments": string(arguments)},
			}}}, message{Role: "tool", Result: id, Content: text(rnd, 2*size/3)})
		}
		return p
	},
	"thinking agent": func(rnd *rand.Rand, text source, n int) prompt {
		p := prompt{Tools: schemas(rnd, 1+rnd.IntN(4)), Messages: []message{{Role: "user", Content: text(rnd, n/10)}}}
		for i, size := 0, 300+rnd.IntN(1500); n > 0; i, n = i+1, n-size {
			id := fmt.Sprint("call_", i)
			p.Messages = append(p.Messages, message{
				Role: "assistant", Reasoning: text(rnd, size/2),
				Calls: []any{map[string]any{
					"id": id, "type": "function", "function": map[string]any{"name": "look_up", "arguments": `{"path":"/tmp"}`},
				}},
			}, message{Role: "tool", Result: id, Content: text(rnd, size/2)})
		}
		return p
	},
	"short turns": func(rnd *rand.Rand, text source, n int) prompt {
		p := prompt{}
		for ; n > 0; n -= 50 {
			p.Messages = append(p.Messages, message{Role: "user", Content: text(rnd, 20)},
				message{Role: "assistant", Content: "OK."})
		}
		p.Messages = append(p.Messages, message{Role: "user", Content: "Go on."})
		return p
	},
	"schemas": func(rnd *rand.Rand, text source, n int) prompt {
		return prompt{Tools: schemas(rnd, max(1, n/1000)), Messages: []message{{Role: "user", Content: text(rnd, 100)}}}
	},
}

// schemas returns tools, some with short descriptions and much that templates leave out.
func schemas(rnd *rand.Rand, n int) (tools []any) {
	describe := func(n int) string { return strings.TrimSpace(sentences("prose", rnd, 1+rnd.IntN(n))) }
	for i := range n {
		parameters := map[string]any{"type": "object", "additionalProperties": false, "properties": members(rnd, 3, describe)}
		tools = append(tools, map[string]any{"type": "function", "function": map[string]any{
			"name": fmt.Sprint("look_up_", i), "description": describe([]int{20, 300, 2000}[rnd.IntN(3)]),
			"parameters": parameters,
		}})
	}
	return tools
}

// members returns the properties of a schema.
func members(rnd *rand.Rand, depth int, describe func(n int) string) map[string]any {
	list := strings.Fields(words["prose"].list)
	all := make(map[string]any)
	for range 1 + rnd.IntN(4) {
		schema := map[string]any{"description": describe(60)}
		switch kind := rnd.IntN(5); {
		case kind == 0:
			schema["type"], schema["minLength"], schema["pattern"] = "string", 1, "^[a-z0-9_-]{1,64}$"
		case kind == 1:
			schema["enum"], schema["type"] = []string{"first", "second", "third"}, "string"
		case kind == 2 && depth > 0:
			schema["type"] = "array"
			schema["items"] = map[string]any{"type": "object", "properties": members(rnd, depth-1, describe)}
		case kind == 3 && depth > 0:
			schema["type"], schema["properties"] = "object", members(rnd, depth-1, describe)
		default:
			schema["anyOf"] = []any{map[string]any{"type": "integer", "minimum": 0}, map[string]any{"type": "null"}}
		}
		all[list[rnd.IntN(len(list))]] = schema
	}
	return all
}

// prompts returns n prompts, of each kind of text in each shape.
func prompts(t *testing.T, n int) (all []prompt) {
	t.Helper()
	texts := sources(t)
	kinds, forms := slices.Sorted(maps.Keys(texts)), slices.Sorted(maps.Keys(shapes))
	for i := range n {
		rnd := rand.New(rand.NewPCG(uint64(i), 47))
		kind, form := kinds[i%len(kinds)], forms[i/len(kinds)%len(forms)]
		p := shapes[form](rnd, texts[kind], 3000+rnd.IntN(3000))
		p.kind = kind + "/" + form
		all = append(all, p)
	}
	return all
}
