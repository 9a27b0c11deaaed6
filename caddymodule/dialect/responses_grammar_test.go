package dialect

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// responseKeys are the keys of a response object.
const responseKeys = `id object created_at completed_at status background error incomplete_details instructions
	max_output_tokens max_tool_calls model output parallel_tool_calls previous_response_id prompt_cache_key reasoning
	safety_identifier service_tier store temperature text tool_choice tools top_logprobs top_p presence_penalty
	frequency_penalty truncation usage user metadata`

// checkResponse checks a response object.
func checkResponse(r any) error {
	if err := keysOf("response", r, responseKeys); err != nil {
		return err
	}
	if str(r, "object") != "response" || str(r, "model") != "public" || !strings.HasPrefix(str(r, "id"), "resp_") ||
		str(r, "service_tier") == "" {
		return fmt.Errorf("a response of the wrong head: %v", r)
	}
	for _, key := range []string{
		"temperature", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs",
		"created_at",
	} {
		if _, ok := dig(r, key).(float64); !ok {
			return fmt.Errorf("%s is no number", key)
		}
	}
	output, ok := dig(r, "output").([]any)
	if !ok {
		return errors.New("output is no array")
	}
	for _, item := range output {
		if err := checkItem(item); err != nil {
			return err
		}
	}
	return checkStatus(r, len(output))
}

// checkStatus checks the members that depend on a response's status.
func checkStatus(r any, items int) error {
	status := str(r, "status")
	ended := status == "completed" || status == "incomplete"
	if !ended && status != "in_progress" && status != "failed" {
		return fmt.Errorf("status %q", status)
	}
	if ended == (dig(r, "completed_at") == nil) || ended == (dig(r, "usage") == nil) {
		return fmt.Errorf("completed_at or usage do not go with status %s", status)
	}
	if (status == "failed") == (dig(r, "error") == nil) ||
		(status == "incomplete") == (dig(r, "incomplete_details") == nil) {
		return fmt.Errorf("error or incomplete_details do not go with status %s", status)
	}
	if status == "failed" && (str(r, "error", "code") == "" || str(r, "error", "message") == "") {
		return fmt.Errorf("error %v", dig(r, "error"))
	}
	if ended {
		if items == 0 {
			return errors.New("no output")
		}
		u := dig(r, "usage")
		if err := keysOf("usage", u,
			"input_tokens input_tokens_details output_tokens output_tokens_details total_tokens"); err != nil {
			return err
		}
		if err := wholeNumbers("usage", u, "input_tokens output_tokens total_tokens"); err != nil {
			return err
		}
		if err := wholeNumbers("input_tokens_details", dig(u, "input_tokens_details"),
			"cached_tokens cache_write_tokens"); err != nil {
			return err
		}
		return wholeNumbers("output_tokens_details", dig(u, "output_tokens_details"), "reasoning_tokens")
	}
	return nil
}

// checkItem checks an output item.
func checkItem(item any) error {
	kind := str(item, "type")
	keys, ok := map[string]string{
		"reasoning":        "id type status summary content? encrypted_content?",
		"compaction":       "id type encrypted_content",
		"message":          "id type role status content",
		"function_call":    "id type status call_id name arguments namespace?",
		"custom_tool_call": "id type status call_id name input namespace?",
		"local_shell_call": "id type status call_id action",
		"shell_call":       "id type status call_id action environment",
		"apply_patch_call": "id type status call_id operation",
	}[kind]
	if !ok {
		return fmt.Errorf("an unknown item: %v", item)
	}
	if err := keysOf(kind, item, keys); err != nil {
		return err
	}
	if str(item, "id") == "" {
		return fmt.Errorf("an item without id: %v", item)
	}
	if strings.HasSuffix(kind, "_call") && str(item, "call_id") == "" {
		return fmt.Errorf("a call without call_id: %v", item)
	}
	return nil
}

// responsesGrammar follows a responses stream, event by event.
type responsesGrammar struct {
	id    string // of the response
	done  []any  // items that are done
	item  any    // the item that is open, as it was added
	part  string // type of the open part
	text  strings.Builder
	steps int  // of the open item: 1 added, 2 part added, 3 text done, 4 part done
	fails bool // error has come
	over  bool // a terminal event has come
	last  bool // [DONE] has come
}

// checkResponsesStream checks a stream against the grammar of the responses
// dialect, sequence numbers, indices and repeated texts included. An
// unfinished stream is an error.
func checkResponsesStream(events []clientEvent) error {
	g := &responsesGrammar{}
	for i, e := range events {
		if err := g.step(i, e); err != nil {
			return fmt.Errorf("event %d, %s: %w", i, e.name, err)
		}
	}
	if !g.last {
		return errors.New("the stream has no end")
	}
	return nil
}

func (g *responsesGrammar) step(i int, e clientEvent) error {
	if g.last || g.over && e.name != "[DONE]" {
		return errors.New("behind the end")
	}
	if e.name == "[DONE]" {
		if g.last = g.over; !g.over {
			return errors.New("without a terminal event")
		}
		return nil
	}
	if e.json["sequence_number"] != float64(i) {
		return fmt.Errorf("sequence_number %v", e.json["sequence_number"])
	}
	if (e.name == "error") != (strings.Contains(e.data, `"error":{"type"`) && e.json["error"] != nil) {
		return errors.New("a top-level error in another event")
	}
	if first := map[int]string{0: "response.created", 1: "response.in_progress"}[i]; first != "" && first != e.name {
		return fmt.Errorf("must be %s", first)
	}
	if e.name == "error" {
		g.fails = true
		if err := keysOf("error", e.json, "type sequence_number code message param error"); err != nil {
			return err
		}
		return keysOf("error.error", e.json["error"], "type code message param")
	}
	name, ok := strings.CutPrefix(e.name, "response.")
	if !ok {
		return errors.New("unknown")
	}
	switch name {
	case "created", "in_progress", "completed", "incomplete", "failed":
		return g.snapshot(i, name, e)
	}
	if g.fails || i < 2 {
		return errors.New("out of place")
	}
	if e.json["output_index"] != float64(len(g.done)) {
		return fmt.Errorf("output_index %v instead of %d", e.json["output_index"], len(g.done))
	}
	if name == "output_item.added" || name == "output_item.done" {
		return g.itemEvent(name, e)
	}
	return g.partEvent(name, e)
}

// snapshot checks an event with the response.
func (g *responsesGrammar) snapshot(i int, name string, e clientEvent) error {
	if err := keysOf(e.name, e.json, "type sequence_number response"); err != nil {
		return err
	}
	r := e.json["response"]
	if err := checkResponse(r); err != nil {
		return err
	}
	status := name
	if name == "created" {
		status = "in_progress"
	}
	if str(r, "status") != status {
		return fmt.Errorf("status %s", str(r, "status"))
	}
	if g.id == "" {
		g.id = str(r, "id")
	}
	output, _ := dig(r, "output").([]any)
	switch {
	case str(r, "id") != g.id, name == "created" && i != 0:
		return errors.New("another response")
	case status == "in_progress":
		if len(output) > 0 {
			return errors.New("output in progress")
		}
		return nil
	case (name == "failed") != g.fails:
		return errors.New("failed goes with error, and only with it")
	case name != "failed" && g.item != nil:
		return errors.New("while an item is open")
	case len(output) != len(g.done) || len(output) > 0 && !reflect.DeepEqual(output, g.done):
		return fmt.Errorf("output %v is not what was done: %v", output, g.done)
	}
	g.over = true
	return nil
}

// itemEvent checks the first or the last event of an item.
func (g *responsesGrammar) itemEvent(name string, e clientEvent) error {
	if err := keysOf(e.name, e.json, "type sequence_number output_index item"); err != nil {
		return err
	}
	item := e.json["item"]
	if err := checkItem(item); err != nil {
		return err
	}
	if name == "output_item.added" {
		if g.item != nil {
			return errors.New("while an item is open")
		}
		g.item, g.steps = item, 1
		g.text.Reset()
		content, _ := dig(item, "content").([]any)
		summary, _ := dig(item, "summary").([]any)
		if str(item, "type") == "compaction" {
			return nil
		}
		if str(item, "status") != "in_progress" || str(item, "arguments")+str(item, "input") != "" ||
			len(content)+len(summary) > 0 {
			return errors.New("an item that is not at its start")
		}
		return nil
	}
	for _, key := range []string{"id", "type", "call_id", "name", "namespace", "role"} {
		if !reflect.DeepEqual(dig(g.item, key), dig(item, key)) {
			return fmt.Errorf("%s was %v, is %v", key, dig(g.item, key), dig(item, key))
		}
	}
	if want := g.stepsOf(); g.steps != want {
		return fmt.Errorf("an item of type %s is done at step %d, not %d", str(item, "type"), g.steps, want)
	}
	text := str(item, "arguments") + str(item, "input") + str(item, "content", 0, "text") +
		str(item, "content", 0, "refusal") + str(item, "summary", 0, "text")
	if text != g.text.String() {
		return fmt.Errorf("text %q, deltas %q", text, g.text.String())
	}
	g.done, g.item = append(g.done, item), nil
	return nil
}

// stepsOf returns the step at which the open item is done.
func (g *responsesGrammar) stepsOf() int {
	switch str(g.item, "type") {
	case "function_call", "custom_tool_call":
		return 3
	case "local_shell_call", "shell_call", "apply_patch_call", "compaction":
		return 1
	}
	return 4
}

// partEvent checks an event inside an item.
func (g *responsesGrammar) partEvent(name string, e clientEvent) error {
	if g.item == nil || e.json["item_id"] != dig(g.item, "id") {
		return fmt.Errorf("item_id %v, open is %v", e.json["item_id"], dig(g.item, "id"))
	}
	kind := str(g.item, "type")
	const common = "type sequence_number item_id output_index "
	rule, ok := map[string]struct{ item, keys, member string }{
		"content_part.added":            {"message", "content_index part", ""},
		"content_part.done":             {"message", "content_index part", ""},
		"output_text.delta":             {"message", "content_index delta logprobs", ""},
		"output_text.done":              {"message", "content_index text logprobs", "text"},
		"refusal.delta":                 {"message", "content_index delta", ""},
		"refusal.done":                  {"message", "content_index refusal", "refusal"},
		"reasoning_summary_part.added":  {"reasoning", "summary_index part", ""},
		"reasoning_summary_part.done":   {"reasoning", "summary_index part", ""},
		"reasoning_summary_text.delta":  {"reasoning", "summary_index delta", ""},
		"reasoning_summary_text.done":   {"reasoning", "summary_index text", "text"},
		"reasoning_text.delta":          {"reasoning", "content_index delta", ""},
		"reasoning_text.done":           {"reasoning", "content_index text", "text"},
		"function_call_arguments.delta": {"function_call", "delta", ""},
		"function_call_arguments.done":  {"function_call", "name arguments", "arguments"},
		"custom_tool_call_input.delta":  {"custom_tool_call", "delta", ""},
		"custom_tool_call_input.done":   {"custom_tool_call", "input", "input"},
	}[name]
	if strings.HasPrefix(name, "content_part.") && str(e.json, "part", "type") == "reasoning_text" {
		rule.item = "reasoning"
	}
	if inSummary := strings.HasPrefix(name, "reasoning_summary"); kind == "reasoning" &&
		inSummary == (dig(g.item, "content") != nil) {
		return errors.New("reasoning is told as a summary or as content, not as both")
	}
	if !ok || rule.item != kind {
		return fmt.Errorf("in an item of type %s", kind)
	}
	if err := keysOf(e.name, e.json, common+rule.keys); err != nil {
		return err
	}
	begun := 1 // the step at which text may come
	if kind == "message" || kind == "reasoning" {
		begun = 2
	}
	step := func(want, next int) error {
		if g.steps != want {
			return fmt.Errorf("at step %d", g.steps)
		}
		g.steps = next
		return nil
	}
	switch {
	case strings.HasSuffix(name, "_part.added"):
		if str(e.json, "part", "text")+str(e.json, "part", "refusal") != "" {
			return errors.New("a part that is not at its start")
		}
		g.part = str(e.json, "part", "type")
		return step(1, 2)
	case strings.HasSuffix(name, ".delta"):
		g.text.WriteString(str(e.json, "delta"))
		return step(begun, begun)
	case rule.member != "":
		if str(e.json, rule.member) != g.text.String() {
			return fmt.Errorf("%s %q, deltas %q", rule.member, str(e.json, rule.member), g.text.String())
		}
		if (kind == "function_call") && g.text.Len() == 0 {
			return errors.New("no delta of arguments")
		}
		return step(begun, 3)
	}
	if str(e.json, "part", "type") != g.part ||
		str(e.json, "part", "text")+str(e.json, "part", "refusal") != g.text.String() {
		return fmt.Errorf("part %v, deltas %q", e.json["part"], g.text.String())
	}
	return step(3, 4)
}
