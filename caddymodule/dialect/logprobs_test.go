package dialect

import (
	"encoding/json"
	"strings"
	"testing"
)

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
		r := testCall(wantProbs)
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
