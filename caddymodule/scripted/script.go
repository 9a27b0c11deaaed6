package scripted

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const introduction = "I am Postern's built-in scripted model, not a real one. " +
	"Your request came all the way through the gateway and its tunnel to me, and this answer takes the same way back. "

const farewell = "I cannot think about it, but a model server can: start one on this machine, or name one with " +
	"--connect, and ask again."

// quoteRunes is the maximum length of the quoted user text.
const quoteRunes = 200

// quote shortens text for quoting.
func quote(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > quoteRunes {
		text = string(runes[:quoteRunes]) + "…"
	}
	return text
}

// reply returns the answer to the last message of a conversation.
func reply(role, text string) string {
	if text = quote(text); text == "" {
		return introduction + farewell
	}
	head := "You wrote"
	if role == "tool" {
		head = "The tool answered"
	}
	return introduction + fmt.Sprintf("%s: “%s”. ", head, text) + farewell
}

// tokens splits text into this model's tokens: words with the preceding space.
// Joining them returns the text.
func tokens(text string) []string {
	var out []string
	start := 0
	for i := 1; i < len(text); i++ {
		if text[i] == ' ' && text[i-1] != ' ' {
			out = append(out, text[start:i])
			start = i
		}
	}
	if start < len(text) {
		out = append(out, text[start:])
	}
	return out
}

// truncate ends text before the first stop sequence, and after limit tokens if limit
// is positive. It returns the remaining tokens and the finish reason.
func truncate(text string, stops []string, limit int) (left []string, finish string) {
	for _, stop := range stops {
		if before, _, found := strings.Cut(text, stop); stop != "" && found {
			text = before
		}
	}
	left = tokens(text)
	if limit > 0 && len(left) > limit {
		return left[:limit], "length"
	}
	return left, "stop"
}

// texts are a JSON string, or a list of strings or of the parts of a message.
type texts []string

func (t *texts) UnmarshalJSON(data []byte) error {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return err
	}
	switch value := value.(type) {
	case nil:
	case string:
		*t = texts{value}
	case []any:
		for _, item := range value {
			text, ok := item.(string)
			if part, isPart := item.(map[string]any); isPart {
				text, _ = part["text"].(string) // "" if the part is not text
			} else if !ok {
				return errors.New("expected strings or parts of a message")
			}
			*t = append(*t, text)
		}
	default:
		return errors.New("expected a string or a list")
	}
	return nil
}

type tool struct {
	Type     string `json:"type"`
	Function struct {
		Name       string `json:"name"`
		Parameters any    `json:"parameters"`
	} `json:"function"`
}

// toolChoice is "auto", "none", "required" or the name of one function.
type toolChoice struct{ mode, name string }

func (c *toolChoice) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &c.mode); err == nil {
		return nil
	}
	var named tool
	err := json.Unmarshal(data, &named)
	c.mode, c.name = "required", named.Function.Name
	return err
}

// agentText is what an agent adds to the words of the user, such as a <system-reminder>. It can name all tools.
var agentText = regexp.MustCompile(`(?s)<\w+[-_]\w[\w-]*>.*?</[\w-]+>`)

// demand is a sentence that asks for the call of a tool.
var demand = regexp.MustCompile(`(?im)(?:^|[.?!] |"|\bplease )call (?:the )?(?:tool )?([\w-]+)`)

// pick returns the tool to call, or nil. Because agents execute the calls, a tool is
// called only if the request requires one or a sentence of the user demands it.
func pick(tools []tool, choice toolChoice, role, text string) *tool {
	if choice.mode == "none" || role != "user" {
		return nil
	}
	demanded := demand.FindStringSubmatch(text)
	wanted := func(t tool) bool {
		name := t.Function.Name
		return t.Type == "function" && name != "" &&
			(choice.name == "" && slices.Contains(demanded, name) || name == choice.name)
	}
	if i := slices.IndexFunc(tools, wanted); i >= 0 {
		return &tools[i]
	}
	if choice.mode == "required" && choice.name == "" && len(tools) > 0 {
		return &tools[0]
	}
	return nil
}

// example returns a simple value that a JSON Schema allows. Objects have their required
// properties only. Anything but an object is a schema without rules, for example true.
func example(schema any) any {
	s, _ := schema.(map[string]any)
	if values, _ := s["enum"].([]any); len(values) > 0 {
		return values[0]
	}
	kind := s["type"]
	if kinds, _ := kind.([]any); len(kinds) > 0 {
		kind = kinds[0]
	}
	switch kind {
	case "string":
		return "example"
	case "integer", "number":
		return 1
	case "boolean":
		return true
	case "array":
		return []any{}
	case "null":
		return nil
	}
	value := object{}
	properties, _ := s["properties"].(map[string]any)
	required, _ := s["required"].([]any)
	for _, name := range required {
		if name, ok := name.(string); ok {
			value[name] = example(properties[name])
		}
	}
	return value
}
