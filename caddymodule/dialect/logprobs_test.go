package dialect

import (
	"encoding/json"
	"strings"
	"testing"
)

// withLogprobs sets the option of a client that wants probabilities.
func withLogprobs(r *reply) { r.logprobs = true }

// prob has the log probability of a token, as a model server sends it and as the client gets it.
func prob(token string) (upstream, client string) {
	client = `{"token":` + quoted(token) +
		`,"logprob":-0.25,"bytes":[1,2],"top_logprobs":[{"token":"x","logprob":-1e1,"bytes":[]}]}`
	upstream = `{"id":7,"token":` + quoted(token) +
		`,"logprob":-0.25,"bytes":[1,2],"top_logprobs":[{"id":8,"token":"x","logprob":-1e1,"bytes":null}]}`
	return upstream, client
}

// probChunk is a chunk with members of a delta and the tokens' probabilities.
func probChunk(members string, tokens ...string) string {
	var list []string
	for _, token := range tokens {
		upstream, _ := prob(token)
		list = append(list, upstream)
	}
	return rawEvent(`{"choices":[{"index":0,"delta":{` + members + `},"logprobs":{"content":[` + strings.Join(list, ",") +
		`],"refusal":null},"finish_reason":null}]}`)
}

// clientProbs is the log probabilities that a client gets.
func clientProbs(tokens ...string) string {
	var list []string
	for _, token := range tokens {
		_, client := prob(token)
		list = append(list, client)
	}
	return `[` + strings.Join(list, ",") + `]`
}

// deltaProbs lists the probabilities of each text delta of a stream, and those
// of its last text.
func deltaProbs(t *testing.T, stream string) (deltas []string, done, part, output string) {
	t.Helper()
	events, err := clientEvents(stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkResponsesStream(events); err != nil {
		t.Fatalf("%v in\n%s", err, stream)
	}
	text := func(v any) string {
		b, _ := json.Marshal(v)
		return string(b)
	}
	for _, e := range events {
		switch e.name {
		case "response.output_text.delta":
			deltas = append(deltas, text(e.json["logprobs"]))
		case "response.output_text.done":
			done = text(e.json["logprobs"])
		case "response.content_part.done":
			part = text(dig(e.json, "part", "logprobs"))
		case "response.completed":
			items, _ := dig(e.json, "response", "output").([]any)
			output = text(dig(items[len(items)-1], "content", 0, "logprobs"))
		}
	}
	return deltas, done, part, output
}

// normal returns JSON in the form of deltaProbs.
func normal(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(v)
	return string(b)
}

func TestLogprobsInStreams(t *testing.T) {
	for _, c := range []struct {
		name, upstream string
		deltas         []string
		all            string
		think          bool
	}{
		{
			"with each piece", probChunk(`"content":"He"`, "He") + probChunk(`"content":"llo"`, "l", "lo"),
			[]string{clientProbs("He"), clientProbs("l", "lo")},
			clientProbs("He", "l", "lo"), false,
		},
		{
			"with some pieces alone", probChunk(`"content":"He"`, "He") + contentChunk("llo"),
			[]string{clientProbs("He"), "[]"},
			clientProbs("He"), false,
		},
		{
			"a token that is half a letter", probChunk(`"content":""`, "\u00c3") + probChunk(`"content":"é"`, "\u00a9"),
			[]string{clientProbs("\u00c3", "\u00a9")},
			clientProbs("\u00c3", "\u00a9"), false,
		},
		{
			"not those of the thinking", probChunk(`"reasoning_content":"hm"`, "hm") + probChunk(`"content":"Hi"`, "Hi"),
			[]string{clientProbs("Hi")},
			clientProbs("Hi"), false,
		},
		{
			"not those of thinking in the text",
			probChunk(`"content":"<th"`, "<th") + probChunk(`"content":"ink>hm"`, "ink>", "hm") +
				probChunk(`"content":"</think>\n"`, "</think>", "\n") + probChunk(`"content":"Hi"`, "Hi"),
			[]string{clientProbs("Hi")},
			clientProbs("Hi"), true,
		},
		{
			"behind a call that is open",
			toolChunk(call(0, "c1", "a", `{"x":`)) + probChunk(`"content":"H"`, "H") + probChunk(`"content":"i"`, "i") +
				toolChunk(more(0, `1}`)),
			[]string{clientProbs("H", "i")},
			clientProbs("H", "i"), false,
		},
		{
			"not those of calls and refusals",
			probChunk(`"tool_calls":[{"index":0,"id":"c1","function":{"name":"a","arguments":"{}"}}]`, "{", "}") +
				probChunk(`"refusal":"no"`, "no") + probChunk(`"content":"Hi"`, "Hi"),
			[]string{clientProbs("Hi")},
			clientProbs("Hi"), false,
		},
		{"none", contentChunk("Hi"), []string{"[]"}, "[]", false},
		{"of another form", rawEvent(`{"choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":{"tokens":["Hi"],` +
			`"token_logprobs":[-1]}}]}`), []string{"[]"}, "[]", false},
		{
			"with much missing", rawEvent(`{"choices":[{"index":0,"delta":{"content":"Hi"},"logprobs":{"content":[7,` +
				`{"token":null,"logprob":null,"top_logprobs":[7,{"token":"y"}]}]}}]}`),
			[]string{`[{"token":"","logprob":0,"bytes":[],"top_logprobs":[{"token":"y","logprob":0,"bytes":[]}]}]`},
			`[{"token":"","logprob":0,"bytes":[],"top_logprobs":[{"token":"y","logprob":0,"bytes":[]}]}]`, false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			upstream := c.upstream + finishChunk("stop") + upstreamDone
			for _, cut := range []func() int{nil, func() int { return 7 }} {
				stream := translate(newTestStream(Responses,
					testCall(withLogprobs, func(r *reply) { r.env.Options.ThinkTags = c.think })), upstream, cut)
				deltas, done, part, output := deltaProbs(t, stream)
				var want []string
				for _, d := range c.deltas {
					want = append(want, normal(t, d))
				}
				if got := strings.Join(deltas, "\n"); got != strings.Join(want, "\n") {
					t.Errorf("deltas\n%s\nwant\n%s", got, strings.Join(want, "\n"))
				}
				for what, got := range map[string]string{"done": done, "part": part, "output": output} {
					if got != normal(t, c.all) {
						t.Errorf("%s\n%s\nwant\n%s", what, got, normal(t, c.all))
					}
				}
			}
			// Other clients get none, and the messages dialect has none.
			if s := translate(newTestStream(Responses, testCall()), upstream, nil); strings.Contains(s, `"logprob"`) {
				t.Errorf("told without being asked:\n%s", s)
			}
			if s := translate(newTestStream(Messages, testCall(withLogprobs)), upstream, nil); strings.Contains(s, "logprob") {
				t.Errorf("told in messages:\n%s", s)
			}
		})
	}
}

func TestLogprobsOfWholeAnswers(t *testing.T) {
	list := func(tokens ...string) string {
		var list []string
		for _, token := range tokens {
			upstream, _ := prob(token)
			list = append(list, upstream)
		}
		return `,"logprobs":{"content":[` + strings.Join(list, ",") + `]}`
	}
	for _, c := range []struct{ name, body, want string }{
		{"text", wholeBody(`"content":"Hello"`, `"stop"`, list("He", "llo")), clientProbs("He", "llo")},
		{
			"text and the mark of the end", wholeBody(`"content":"Hello"`, `"stop"`, list("He", "llo", "<|end|>")),
			clientProbs("He", "llo", "<|end|>"),
		},
		{"behind thinking", wholeBody(`"content":"Hi you","reasoning_content":"Hi"`, `"stop"`,
			list("Hi", "</think>", "\n\n", "Hi", " you", "<|end|>")), clientProbs("Hi", " you")},
		{"thinking without a token of the text", wholeBody(`"content":"Hi","reasoning":"hm"`, `"stop"`, list("hm")), "[]"},
		{"tokens across the edge", wholeBody(`"content":"Hi","reasoning":"hm"`, `"stop"`, list("hm\nH", "i")), "[]"},
		{"tokens across the other edge", wholeBody(`"content":"Hi","reasoning":"hm"`, `"stop"`, list("hm", "H", "i!")), "[]"},
		{"null", wholeBody(`"content":"Hi"`, `"stop"`, `,"logprobs":null`), "[]"},
	} {
		r := testCall(withLogprobs)
		r.dialect = Responses
		out, _, err := encodeWhole([]byte(c.body), r)
		if err != nil {
			t.Fatal(err.Message)
		}
		var response any
		if err := json.Unmarshal(out, &response); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		items, _ := dig(response, "output").([]any)
		got, _ := json.Marshal(dig(items[len(items)-1], "content", 0, "logprobs"))
		if string(got) != normal(t, c.want) {
			t.Errorf("%s\n got %s\nwant %s", c.name, got, normal(t, c.want))
		}
	}
}

// The parameters for log probabilities are passed on.
func TestLogprobsAreAskedFor(t *testing.T) {
	for _, c := range []struct {
		members, logprobs, top string
		told                   bool
	}{
		{`"include":["message.output_text.logprobs"]`, "true", "", true},
		{`"include":["message.output_text.logprobs"],"top_logprobs":3`, "true", "3", true},
		{`"top_logprobs":2`, "true", "2", true},
		{`"top_logprobs":0`, "", "", false},
		{`"include":[]`, "", "", false},
	} {
		body := responsesBody(`"input":"u",` + c.members)
		checkFields(t, upstreamFields(t, responsesOp, body), map[string]string{"logprobs": c.logprobs, "top_logprobs": c.top})
		stream := translate(mustDecode(t, responsesOp, body, testEnv()).NewStream(),
			probChunk(`"content":"Hi"`, "Hi")+finishChunk("stop")+upstreamDone, nil)
		if told := strings.Contains(stream, `"logprob":-0.25`); told != c.told {
			t.Errorf("%s: told %v, want %v", c.members, told, c.told)
		}
	}
}
