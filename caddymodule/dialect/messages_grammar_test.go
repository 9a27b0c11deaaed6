package dialect

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// keysOf checks that an object has exactly these keys. Those with a '?' at the end are optional.
func keysOf(what string, v any, names string) error {
	m, ok := v.(map[string]any)
	if !ok {
		return fmt.Errorf("%s is no object: %v", what, v)
	}
	left := len(m)
	for name := range strings.FieldsSeq(names) {
		name, optional := strings.CutSuffix(name, "?")
		if _, ok := m[name]; ok {
			left--
		} else if !optional {
			return fmt.Errorf("%s lacks %s", what, name)
		}
	}
	if left != 0 {
		return fmt.Errorf("%s has %d keys too many: %v", what, left, m)
	}
	return nil
}

// wholeNumbers checks that members are whole numbers, not negative.
func wholeNumbers(what string, v any, names string) error {
	for name := range strings.FieldsSeq(names) {
		n, ok := dig(v, name).(float64)
		if !ok || n < 0 || n != float64(int64(n)) {
			return fmt.Errorf("%s.%s is no count: %v", what, name, dig(v, name))
		}
	}
	return nil
}

// messageUsageKeys are the keys of a message's usage.
const messageUsageKeys = "input_tokens output_tokens cache_creation_input_tokens cache_read_input_tokens " +
	"cache_creation server_tool_use service_tier output_tokens_details inference_geo speed"

// checkMessage checks a message object. It has every key that SDKs' types require, and
// none of the upstream's.
func checkMessage(m map[string]any) error {
	if err := keysOf("message", m,
		"id type role model content stop_reason stop_sequence stop_details container usage"); err != nil {
		return err
	}
	if m["type"] != "message" || m["role"] != "assistant" || m["model"] != "public" ||
		!strings.HasPrefix(str(m, "id"), "msg_") {
		return fmt.Errorf("a message of the wrong head: %v", m)
	}
	usage := m["usage"]
	if err := keysOf("usage", usage, messageUsageKeys); err != nil {
		return err
	}
	if err := wholeNumbers("usage", usage,
		"input_tokens output_tokens cache_creation_input_tokens cache_read_input_tokens"); err != nil {
		return err
	}
	content, ok := m["content"].([]any)
	if !ok {
		return errors.New("content is no array")
	}
	calls := false
	for _, block := range content {
		if err := checkBlock(block, true); err != nil {
			return err
		}
		calls = calls || str(block, "type") == "tool_use"
	}
	if m["stop_reason"] == nil {
		return nil // the message of message_start
	}
	return checkStop(m, calls)
}

// checkBlock checks a content block; whole reports whether it has its content.
func checkBlock(block any, whole bool) error {
	switch str(block, "type") {
	case "text":
		return keysOf("text", block, "type text")
	case "thinking":
		if signed := str(block, "signature") != ""; signed != whole {
			return fmt.Errorf("a signature at the wrong time: %v", block)
		}
		return keysOf("thinking", block, "type thinking signature")
	case "tool_use":
		if str(block, "id") == "" || str(block, "name") == "" {
			return fmt.Errorf("a call without id or name: %v", block)
		}
		if _, ok := dig(block, "input").(map[string]any); !ok {
			return fmt.Errorf("an input that is no object: %v", block)
		}
		return keysOf("tool_use", block, "type id name input caller toolset_name?")
	}
	return fmt.Errorf("an unknown block: %v", block)
}

// checkStop checks the members of a message, or of a message_delta, about its end.
func checkStop(v any, calls bool) error {
	reason := str(v, "stop_reason")
	switch reason {
	case "end_turn", "max_tokens", "tool_use", "stop_sequence", "refusal":
	default:
		return fmt.Errorf("stop_reason %q", reason)
	}
	if calls && (reason == "end_turn" || reason == "stop_sequence") || !calls && reason == "tool_use" {
		return fmt.Errorf("stop_reason %s, calls %v", reason, calls)
	}
	if (reason == "stop_sequence") != (dig(v, "stop_sequence") != nil) {
		return fmt.Errorf("stop_reason %s with stop_sequence %v", reason, dig(v, "stop_sequence"))
	}
	if reason != "refusal" {
		if dig(v, "stop_details") != nil {
			return fmt.Errorf("stop_details %v", dig(v, "stop_details"))
		}
		return nil
	}
	return keysOf("stop_details", dig(v, "stop_details"), "type category explanation")
}

// messagesGrammar follows a messages stream, event by event.
type messagesGrammar struct {
	index  int    // of the block that is open, or comes next
	open   string // its type, "" if none is open
	json   strings.Builder
	signed bool
	filled bool // the block has a delta
	calls  bool
	whole  []bool // of the calls so far: their input is a whole object
	state  string // "", "begun", "delta", "over"
}

// checkMessagesStream checks a stream against the grammar
//
//	message_start ping? ( content_block_start content_block_delta* content_block_stop )* message_delta message_stop
//
// with pings anywhere after message_start, or an error in place of the rest. An unfinished stream
// is an error.
func checkMessagesStream(events []clientEvent) error {
	g := &messagesGrammar{}
	for i, e := range events {
		if err := g.step(e); err != nil {
			return fmt.Errorf("event %d, %s: %w", i, e.name, err)
		}
	}
	if g.state != "over" {
		return errors.New("the stream has no end")
	}
	return nil
}

func (g *messagesGrammar) step(e clientEvent) error {
	if g.state == "over" {
		return errors.New("behind the end")
	}
	if (g.state == "") != (e.name == "message_start") {
		return errors.New("message_start must be the first event, once")
	}
	switch e.name {
	case "message_start":
		return g.start(e)
	case "ping":
		return keysOf("ping", e.json, "type")
	case "error":
		g.state = "over"
		if err := keysOf("error", e.json, "type error request_id"); err != nil {
			return err
		}
		return keysOf("error.error", e.json["error"], "type message")
	case "message_stop":
		if g.state != "delta" {
			return errors.New("without message_delta")
		}
		g.state = "over"
		return keysOf("message_stop", e.json, "type")
	}
	if g.state != "begun" {
		return errors.New("behind message_delta")
	}
	if e.name == "message_delta" {
		return g.end(e)
	}
	if e.json["index"] != float64(g.index) {
		return fmt.Errorf("index %v instead of %d", e.json["index"], g.index)
	}
	switch e.name {
	case "content_block_start":
		return g.startBlock(e)
	case "content_block_delta":
		return g.fillBlock(e)
	case "content_block_stop":
		return g.stopBlock(e)
	}
	return errors.New("unknown")
}

func (g *messagesGrammar) start(e clientEvent) error {
	g.state = "begun"
	if err := keysOf("message_start", e.json, "type message"); err != nil {
		return err
	}
	m, _ := e.json["message"].(map[string]any)
	if m["stop_reason"] != nil || m["stop_sequence"] != nil || str(m, "content") != "" || len(m["content"].([]any)) != 0 {
		return fmt.Errorf("a message that is not at its start: %v", m)
	}
	return checkMessage(m)
}

func (g *messagesGrammar) startBlock(e clientEvent) error {
	if g.open != "" {
		return errors.New("while a block is open")
	}
	if err := keysOf(e.name, e.json, "type index content_block"); err != nil {
		return err
	}
	block := e.json["content_block"]
	g.open, g.signed, g.filled = str(block, "type"), false, false
	g.json.Reset()
	if g.open == "tool_use" {
		g.calls = true
		if !strings.Contains(e.data, `"input":{}`) {
			return errors.New("the input is not {} to the letter")
		}
	}
	if str(block, "text")+str(block, "thinking") != "" {
		return fmt.Errorf("a block that begins with content: %v", block)
	}
	return checkBlock(block, false)
}

func (g *messagesGrammar) fillBlock(e clientEvent) error {
	if err := keysOf(e.name, e.json, "type index delta"); err != nil {
		return err
	}
	delta := e.json["delta"]
	kind := str(delta, "type")
	if g.signed {
		return errors.New("behind the signature")
	}
	keys := map[string][2]string{
		"text_delta": {"text", "text"}, "thinking_delta": {"thinking", "thinking"},
		"signature_delta": {"thinking", "signature"}, "input_json_delta": {"tool_use", "partial_json"},
	}[kind]
	if keys[0] == "" || keys[0] != g.open {
		return fmt.Errorf("%s in a block of type %q", kind, g.open)
	}
	if err := keysOf(kind, delta, "type "+keys[1]); err != nil {
		return err
	}
	value := str(delta, keys[1])
	if value == "" && kind != "input_json_delta" {
		return errors.New("an empty delta")
	}
	g.signed = kind == "signature_delta"
	g.json.WriteString(value)
	if g.open == "tool_use" && !strings.HasPrefix(g.json.String(), "{") {
		return fmt.Errorf("arguments that are no object: %q", g.json.String())
	}
	return nil
}

func (g *messagesGrammar) stopBlock(e clientEvent) error {
	if g.open == "" {
		return errors.New("no block is open")
	}
	if g.open == "thinking" && !g.signed {
		return errors.New("thinking without a signature")
	}
	if g.open == "tool_use" {
		var object map[string]any
		text := g.json.String()
		g.whole = append(g.whole, text == "" || json.Unmarshal([]byte(text), &object) == nil)
	}
	g.open = ""
	g.index++
	return keysOf(e.name, e.json, "type index")
}

func (g *messagesGrammar) end(e clientEvent) error {
	if g.open != "" {
		return errors.New("while a block is open")
	}
	g.state = "delta"
	if err := keysOf(e.name, e.json, "type delta usage"); err != nil {
		return err
	}
	if err := keysOf("usage", e.json["usage"],
		"input_tokens output_tokens cache_creation_input_tokens cache_read_input_tokens server_tool_use "+
			"output_tokens_details"); err != nil {
		return err
	}
	if err := wholeNumbers("usage", e.json["usage"],
		"input_tokens output_tokens cache_creation_input_tokens cache_read_input_tokens"); err != nil {
		return err
	}
	delta := e.json["delta"]
	if err := keysOf("delta", delta, "stop_reason stop_sequence stop_details container"); err != nil {
		return err
	}
	for k, whole := range g.whole {
		if !whole && str(delta, "stop_reason") == "tool_use" {
			return fmt.Errorf("call %d has arguments that are no object, but is to be run", k)
		}
	}
	return checkStop(delta, g.calls)
}
