package dialect

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/dialect/kept"
)

const compactionItems = `{"role":"user","content":"u"},{"type":"function_call","call_id":"a","name":"f",` +
	`"arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"r"},{"type":"compaction_trigger"}`

// The upstream's request for a compaction asks for a summary, without tools, format and
// probabilities.
func TestCompactionRequest(t *testing.T) {
	fields := upstreamFields(t, responsesOp,
		responsesBody(`"instructions":"I","tools":[{"type":"function","name":"f"}],"tool_choice":"required",`+
			`"parallel_tool_calls":true,"max_output_tokens":500,
		"text":{"format":{"type":"json_schema","schema":{}}},"include":["message.output_text.logprobs"],"top_logprobs":2,`+
			`"reasoning":{"effort":"low"},"input":[`+compactionItems+`]`))
	checkFields(t, fields, map[string]string{
		"tools": "", "tool_choice": "", "parallel_tool_calls": "", "response_format": "", "logprobs": "", "top_logprobs": "",
		"max_tokens": "500", "reasoning_effort": `"low"`, "stream": "true",
		"messages": "[" + saying("system", "I") + "," + chatU + "," + chatCall("", "", [3]string{"a", "f", "{}"}) + "," +
			toolSays("a", "r") + "," + saying("user", compactionOrder) + "]",
	})
	// A trigger that is not the last item is history.
	fields = upstreamFields(t, responsesOp, responsesBody(`"input":[{"type":"compaction_trigger"},`+itemU+`]`))
	checkFields(t, fields, map[string]string{"messages": "[" + chatU + "]"})
}

// compactionOf returns the only item of a response, and its summary.
func compactionOf(t *testing.T, response any) (item any, summary string) {
	t.Helper()
	output, _ := dig(response, "output").([]any)
	if len(output) != 1 || str(output[0], "type") != "compaction" || !strings.HasPrefix(str(output[0], "id"), "cmp_") ||
		str(response, "status") != "completed" {
		t.Fatalf("not one compaction item: %v", response)
	}
	return output[0], (&Env{Sealer: testSealer}).unseal(compactionMark, str(output[0], "encrypted_content"))
}

func TestCompaction(t *testing.T) {
	decode := func() Call {
		return mustDecode(t, responsesOp, responsesBody(`"input":[`+compactionItems+`]`), testEnv())
	}
	upstream := reasonChunk("hm") + contentChunk("The user \"wants\"") + contentChunk("\ntea.") + finishChunk("stop") +
		usageChunk(100, 75, 7) + upstreamDone
	stream := translate(decode().NewStream(), upstream, func() int { return 11 })
	events, err := clientEvents(stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkResponsesStream(events); err != nil {
		t.Fatalf("%v in\n%s", err, stream)
	}
	var names []string
	for _, e := range events {
		names = append(names, strings.TrimPrefix(e.name, "response."))
	}
	if got := strings.Join(names, " "); got != "created in_progress output_item.added output_item.done completed [DONE]" {
		t.Error(got)
	}
	response := dig(events[len(events)-2].json, "response")
	item, summary := compactionOf(t, response)
	want := compactionHead + "The user \"wants\"\ntea."
	if summary != want || strings.Contains(stream, "tea") || strings.Contains(stream, "hm") {
		t.Errorf("summary %q in\n%s", summary, stream)
	}
	if dig(response, "usage", "input_tokens") != 100.0 || dig(response, "usage", "output_tokens") != 7.0 {
		t.Errorf("usage %v", dig(response, "usage"))
	}

	body, usage, fault := decode().Answer([]byte(wholeBody(`"content":"The user \"wants\"\ntea.",`+
		`"reasoning_content":"hm"`, `"stop"`, "")))
	if fault != nil {
		t.Fatal(fault.Message)
	}
	var whole any
	if err := json.Unmarshal(body, &whole); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if err := checkResponse(whole); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if _, got := compactionOf(t, whole); got != want || usage.PromptTokens != 100 {
		t.Errorf("whole: summary %q, usage %+v", got, usage)
	}

	// The model gets the summary if the client sends the item in place of the conversation.
	text, _ := json.Marshal(item)
	fields := upstreamFields(t, responsesOp, responsesBody(`"input":[`+string(text)+`,`+itemU+`]`))
	checkFields(t, fields, map[string]string{"messages": "[" + saying("user", want) + "," + chatU + "]"})
}

// An answer that is not a complete summary must not replace the conversation.
func TestCompactionFails(t *testing.T) {
	for name, c := range map[string]struct{ stream, whole string }{
		"nothing":     {contentChunk("") + finishChunk("stop"), wholeBody(`"content":""`, `"stop"`, "")},
		"white space": {contentChunk(" \n\n") + finishChunk("stop"), wholeBody(`"content":" \n"`, `"stop"`, "")},
		"thinking alone": {
			reasonChunk("hm") + finishChunk("stop"),
			wholeBody(`"content":"","reasoning":"hm"`, `"stop"`, ""),
		},
		"cut by the limit": {
			contentChunk("The user") + finishChunk("length"),
			wholeBody(`"content":"The user"`, `"length"`, ""),
		},
		"cut by the filter": {
			contentChunk("The user") + finishChunk("content_filter"),
			wholeBody(`"content":"The user"`, `"content_filter"`, ""),
		},
		"a refusal": {
			deltaChunk(`"refusal":"No."`) + finishChunk("stop"),
			wholeBody(`"content":null,"refusal":"No."`, `"stop"`, ""),
		},
		"a refusal behind text": {
			contentChunk("Well.") + deltaChunk(`"refusal":"No."`) + finishChunk("stop"),
			wholeBody(`"content":"Well.","refusal":"No."`, `"stop"`, ""),
		},
		"a call instead": {
			toolChunk(call(0, "c1", "f", "{}")) + finishChunk("tool_calls"),
			wholeBody(`"content":null,"tool_calls":[`+call(0, "c1", "f", "{}")+`]`, `"tool_calls"`, ""),
		},
		"the server gave it up": {
			contentChunk("The user") + finishChunk("error"),
			wholeBody(`"content":"The user"`, `"error"`, ""),
		},
		"the end without an end": {contentChunk(""), `{"choices":[]}`},
	} {
		decode := func() Call {
			return mustDecode(t, responsesOp, responsesBody(`"input":[`+compactionItems+`]`), testEnv())
		}
		s := decode().NewStream()
		events, err := clientEvents(translate(s, c.stream+upstreamDone, nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := checkResponsesStream(events); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		response := dig(events[len(events)-2].json, "response")
		if output, _ := dig(response, "output").([]any); str(response, "status") != "failed" || len(output) > 0 ||
			s.Err() == nil {
			t.Errorf("%s: %v, error %v", name, response, s.Err())
		}
		if body, _, fault := decode().Answer([]byte(c.whole)); fault == nil || fault.HTTPStatus(Responses) != 502 {
			t.Errorf("%s: %v, %s", name, fault, body)
		}
	}
}

// A response that continues a compaction continues only the summary.
func TestCompactionIsKept(t *testing.T) {
	env := testEnv()
	env.Kept = viewOf(kept.NewStore(env.Now), "acme", "key")
	c := mustDecode(t, responsesOp, responsesBody(`"input":[`+compactionItems+`]`), env)
	events, _ := clientEvents(translate(c.NewStream(), contentChunk("Tea.")+finishChunk("stop")+upstreamDone, nil))
	id := str(dig(events[len(events)-2].json, "response"), "id")
	up := upstreamBody(t, mustDecode(t, responsesOp, responsesBody(`"previous_response_id":"`+id+`","input":"u"`), env))
	if !strings.HasSuffix(up, `"messages":[`+saying("user", compactionHead+"Tea.")+","+chatU+"]}") {
		t.Error(up)
	}
}
