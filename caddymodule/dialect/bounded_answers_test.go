package dialect

import (
	"fmt"
	"strings"
)

// These rows are about input of model servers: whole answers, errors and streams.

// whole encodes a whole answer in a dialect.
func whole(d Dialect, change ...func(*reply)) func([]byte) (any, *Error) {
	return func(body []byte) (any, *Error) {
		r := testCall(change...)
		r.dialect = d
		out, _, err := encodeWhole(body, r)
		return out, err
	}
}

// rewriting rewrites a whole answer of the chat dialect.
func rewriting(body []byte) (any, *Error) {
	out, _, err := rewriteCompletion(body, "public", nil)
	return out, err
}

// replaying converts a whole answer of the chat dialect to a stream.
func replaying(body []byte) (any, *Error) {
	out, err := ReplayAsStream(body)
	return out, err
}

// readingError reads an upstream's error.
func readingError(body []byte) (any, *Error) { return FromUpstream(500, nil, body), nil }

// streaming feeds a stream as it is read from the network.
func streaming(d Dialect, change ...func(*reply)) func([]byte) (any, *Error) {
	return feeding(d, 32<<10, change...)
}

// feeding feeds a stream in pieces of a size.
func feeding(d Dialect, size int, change ...func(*reply)) func([]byte) (any, *Error) {
	return func(body []byte) (any, *Error) {
		chat := NewChatStream(ChatStreamOptions{Model: "public", Choices: 1})
		chat.repair = true
		var s Stream = chat
		if d != Chat {
			s = newTestStream(d, testCall(change...))
		}
		for len(body) > 0 && !s.Done() {
			n := min(size, len(body))
			s.Feed(body[:n])
			body = body[n:]
		}
		s.End(nil)
		return s, s.Err()
	}
}

// pieces is a text with n pieces.
func pieces(head string, piece func(i int) string, tail string) func(n int) string {
	return func(n int) string {
		var b strings.Builder
		b.WriteString(head)
		for i := range n {
			b.WriteString(piece(i))
		}
		b.WriteString(tail)
		return b.String()
	}
}

const (
	anAnswer = `{"id":"c","model":"up","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant",`
	streamed = `{"choices":[{"index":0,"delta":{`
)

var (
	wantProbs = func(r *reply) { r.logprobs = true }
	wantTags  = func(r *reply) { r.env.Options.ThinkTags = true }
	stopped   = finishChunk("stop") + upstreamDone
	calledFor = finishChunk("tool_calls") + upstreamDone
)

var answerRows = []boundedRow{
	{
		name: "answer's text", input: piecesOf(anAnswer+`"content":`, "some words ", `}}]}`), work: whole(Messages),
		maximum: 1 << 20,
	},
	{
		name: "answer's text in responses", input: piecesOf(anAnswer+`"content":`, "some words ", `}}]}`),
		work: whole(Responses), maximum: 1 << 20,
	},
	{
		name: "answer's escapes", input: piecesOf(anAnswer+`"content":`, `\u0001\n`, `}}]}`), work: whole(Responses),
		maximum: 1 << 20,
	},
	{
		name: "answer's parts", input: listOf(anAnswer+`"content":[`, same(`{"type":"text","text":"some words"}`), `]}}]}`),
		work: whole(Messages),
	},
	{
		name:  "answer's parts behind thinking",
		input: listOf(anAnswer+`"reasoning":"r","content":[`, same(`{"type":"text","text":"some words"}`), `]}}]}`),
		work:  whole(Responses, wantProbs),
	},
	{name: "answer's calls", input: listOf(anAnswer+`"tool_calls":[`,
		numbered(`{"id":"a#","function":{"name":"f","arguments":"{}"}}`), `]}}]}`), work: whole(Messages), maximum: 1000 / 4},
	{
		name:  "answer's calls in responses",
		input: listOf(anAnswer+`"tool_calls":[`, numbered(`{"id":"a#","function":{"name":"f","arguments":"{}"}}`), `]}}]}`),
		work:  whole(Responses), maximum: 1000 / 4,
	},
	{name: "answer's empty calls", input: listOf(anAnswer+`"tool_calls":[`, same(`{}`), `]}}]}`), work: whole(Responses)},
	{
		name: "answer's empty calls rewritten", input: listOf(anAnswer+`"tool_calls":[`, same(`{}`), `]}}]}`),
		work: rewriting,
	},
	{name: "answer's arguments", input: piecesOf(anAnswer+`"tool_calls":[{"id":"a","function":{"name":"f","arguments":`,
		`{\"a\":`, `}}]}}]}`), work: whole(Responses), maximum: 1 << 20},
	{name: "answer's choices", input: listOf(`{"id":"c","choices":[`,
		numbered(`{"index":#,"finish_reason":"stop","message":{"content":"some words"}}`), `]}`), work: whole(Messages)},
	{
		name: "answer's names of the model", input: listOf(`{`, same(`"model":"up"`), `,"choices":[]}`), work: rewriting,
		fails: "too many", minimum: maxEdits + 1, maximum: 1 << 20,
	},
	{name: "answer's members", input: listOf(anAnswer+`"content":"a"}}],`, numbered(`"a#":1`), `}`), work: rewriting},
	{
		name: "answer's members replayed", input: listOf(anAnswer+`"content":"a"}}],`, numbered(`"a#":1`), `}`),
		work: replaying,
	},
	{
		name: "answer's ids replayed", input: listOf(anAnswer+`"content":"a"}}],`, numbered(`"id":"a#"`), `}`),
		work: replaying,
	},
	{
		name: "answer's empty choices", input: listOf(`{"id":"`+strings.Repeat("c", 200)+`","choices":[`, same(`{}`), `]}`),
		work: replaying,
	},
	{name: "answer's choices and members", input: func(n int) string {
		return listOf(`{"choices":[`, same(`{"index":0,"message":{"content":"some words"}}`),
			`],"a":"`+strings.Repeat("some words ", n)+`"}`)(n)
	}, work: replaying, fails: "too many", minimum: maxEdits + 1, maximum: 1 << 20},
	{
		name: "answer's probabilities",
		input: listOf(anAnswer+`"content":"ab"},"logprobs":{"content":[`,
			same(`{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]}`), `]}}]}`), work: whole(Responses, wantProbs),
	},
	{
		name:  "answer's empty probabilities",
		input: listOf(anAnswer+`"content":"ab"},"logprobs":{"content":[`, same(`{}`), `]}}]}`),
		work:  whole(Responses, wantProbs),
	},
	{
		name: "answer's probabilities behind thinking",
		input: listOf(anAnswer+`"reasoning":"r","content":"ab"},"logprobs":{"content":[`,
			same(`{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]}`), `]}}]}`), work: whole(Responses, wantProbs),
	},
	{name: "error's HTML", input: pieces(`<html>`, same(`<script<!---->`), ``), work: readingError, maximum: 1000},
	{name: "error's scripts", input: pieces(`<html>`, same(`<script>`), ``), work: readingError, maximum: 1000},
	{name: "error's comments", input: pieces(`<html>`, same(`<!--`), ``), work: readingError, maximum: 1000},
	{
		name: "error's details", input: listOf(`{"detail":[`, same(`{"loc":["body"],"msg":"m"}`), `]}`), work: readingError,
		maximum: 6000,
	},
	{
		name: "error's type", input: piecesOf(`{"error":{"message":"m","type":`, `context length `, `}}`),
		work: readingError, maximum: 10_000,
	},
	{
		name: "string in strings", input: func(n int) string { return nested(n) },
		work: func(b []byte) (any, *Error) { return customInput(string(b), false), nil }, maximum: 1 << 20,
	},
}

// nested returns a string of about n bytes with JSON strings inside JSON strings.
func nested(n int) string {
	text := strings.Repeat("a", n)
	for len(text) < 2*n {
		text = quoted(text)
	}
	return text
}

var streamRows = []boundedRow{
	{name: "stream of text", input: pieces("", same(contentChunk("a")), stopped), work: streaming(Messages)},
	{name: "stream of text in responses", input: pieces("", same(contentChunk("a")), stopped), work: streaming(Responses)},
	{name: "stream of text in chat", input: pieces("", same(contentChunk("a")), stopped), work: streaming(Chat)},
	{name: "stream in bytes", input: pieces("", same(contentChunk("a")), stopped), work: feeding(Responses, 1)},
	{
		name:  "stream of large pieces",
		input: func(n int) string { return contentChunk(strings.Repeat("some words ", n)) + stopped },
		work:  streaming(Messages), maximum: 1 << 20,
	},
	{
		name: "stream of thinking", input: pieces("", same(reasonChunk("a")), contentChunk("a")+stopped),
		work: streaming(Responses),
	},
	{
		name: "stream of thinking and text", input: pieces("", same(reasonChunk("a")+contentChunk("a")), stopped),
		work: streaming(Messages),
	},
	{
		name: "stream of arguments",
		input: pieces(toolChunk(call(0, "c", "f", `{"a":"`)), same(toolChunk(more(0, "a"))),
			toolChunk(more(0, `"}`))+calledFor), work: streaming(Responses),
	},
	{
		name: "stream of blank arguments",
		input: pieces(toolChunk(call(0, "c", "f", ` `)), same(toolChunk(more(0, "          "))),
			toolChunk(more(0, `{}`))+calledFor), work: streaming(Messages),
	},
	{
		name:  "stream of held arguments",
		input: pieces("", same(toolChunk(more(0, "a"))), toolChunk(call(0, "c", "f", ``))+calledFor),
		work:  streaming(Messages),
	},
	{
		name: "stream of arguments that wait",
		input: pieces(toolChunk(call(0, "a", "f", `{"a":"`), call(1, "b", "f", `{"a":"`)), same(toolChunk(more(1, "a"))),
			toolChunk(more(0, `"}`), more(1, `"}`))+calledFor), work: streaming(Messages),
	},
	{
		name:  "stream of text that waits",
		input: pieces(toolChunk(call(0, "a", "f", `{"a":"`)), same(contentChunk("a")), toolChunk(more(0, `"}`))+calledFor),
		work:  streaming(Messages),
	},
	{
		name: "stream of parts that wait",
		input: pieces(toolChunk(call(0, "a", "f", `{"a":"`)), same(contentChunk("a")+reasonChunk("b")),
			toolChunk(call(1, "b", "f", `{"a":"`))+calledFor), work: streaming(Messages), minimum: maxWaiting, maximum: 1 << 20,
		fails: "too many",
	},
	{name: "stream of calls", input: pieces("",
		numbered(rawEvent(streamed+`"tool_calls":[{"index":#,"id":"c#","function":{"name":"f","arguments":"{}"}}]}}]}`)),
		calledFor), work: streaming(Messages), maximum: 1000 / 4},
	{
		name: "stream of many calls",
		input: pieces("", numbered(rawEvent(streamed+
			`"tool_calls":[{"index":#,"id":"c#","function":{"name":"f","arguments":"{"}}]}}]}`)), calledFor),
		work: streaming(Chat),
	},
	{name: "stream of calls with long ids", input: pieces("", func(i int) string {
		return toolChunk(call(0, strings.Repeat("c", 4000)+fmt.Sprint(i), "f", "{}"))
	}, calledFor), work: streaming(Chat), maximum: 4000},
	{
		name: "stream of pieces of many calls",
		input: pieces(pieces("", func(i int) string { return toolChunk(call(i, fmt.Sprint("c", i), "f", `{"a":"`)) },
			"")(250), func(i int) string { return toolChunk(more(i%250, "a")) }, ""), work: streaming(Chat),
		fails: "closed the stream", minimum: 512,
	},
	{
		name: "stream of calls in one event", input: listOf("data: "+streamed+`"tool_calls":[`, same(`{}`), "]}}]}\n\n"),
		work: streaming(Chat), fails: "too many", minimum: maxEdits + 1, maximum: 1 << 19,
	},
	{name: "stream of choices", input: pieces("", numbered(rawEvent(`{"choices":[{"index":#,"delta":{"content":"a"}}]}`)),
		stopped), work: streaming(Chat)},
	{name: "stream of ids in one event", input: func(n int) string {
		choices := listOf(`"choices":[`, numbered(`{"index":#,"delta":{"content":"a"},"finish_reason":""}`), `]}`)(200)
		return rawEvent(listOf(`{`, numbered(`"id":"some words, and # at the end of them"`), ","+choices)(n)) + upstreamDone
	}, work: streaming(Chat), maximum: 1 << 19},
	{
		name: "stream of names of the model", input: listOf("data: {", same(`"model":"up"`), "}\n\n"), work: streaming(Chat),
		fails: "too many", minimum: maxEdits + 1, maximum: 1 << 19,
	},
	{
		name: "stream of nulls", input: listOf("data: {", same(`"error":null`), "}\n\n"), work: streaming(Chat),
		fails: "too many", minimum: maxEdits + 1, maximum: 1 << 19,
	},
	{
		name: "stream of comments", input: pieces("", same(": ping\n\n"), contentChunk("a")+stopped),
		work: streaming(Messages), maximum: 1 << 20,
	},
	{
		name: "stream of lines", input: pieces("", same("data: 1\n"), "\n"+contentChunk("a")+stopped),
		work: streaming(Messages), maximum: 1 << 19,
	},
	{
		name: "stream of carriage returns", input: pieces("", same("\r"), "\n"+contentChunk("a")+stopped),
		work: streaming(Messages), maximum: 1 << 20,
	},
	{
		name:  "stream of blank tags",
		input: pieces(contentChunk("<think>a"), same(contentChunk("\n")), contentChunk("</think>b")+stopped),
		work:  streaming(Responses, wantTags),
	},
	{name: "stream of tags", input: pieces(contentChunk("<think>a"), same(contentChunk("</thin")),
		contentChunk("</think>b")+stopped), work: streaming(Messages, wantTags)},
	{
		name:  "stream of probabilities",
		input: pieces("", func(i int) string { return probChunk(`"content":"a"`, "a") }, stopped),
		work:  streaming(Responses, wantProbs),
	},
	{
		name:  "stream of probabilities without text",
		input: pieces("", func(i int) string { return probChunk(`"content":""`, "a") }, stopped),
		work:  streaming(Responses, wantProbs),
	},
	{
		name: "stream of a refusal", input: pieces("", same(deltaChunk(`"refusal":"a"`)), stopped),
		work: streaming(Messages),
	},
	{
		name: "stream of a summary", input: pieces("", same(contentChunk("a")), stopped),
		work: streaming(Responses, func(r *reply) { r.compact = true }),
	},
	{
		name: "stream of custom arguments",
		input: pieces(toolChunk(call(0, "c", "custom", `{"input":"`)), same(toolChunk(more(0, "a"))),
			toolChunk(more(0, `"}`))+calledFor), work: streaming(Responses, func(r *reply) {
			r.names = map[string]ToolName{"custom": {Kind: ToolCustom, Name: "custom"}}
		}),
	},
	{
		name: "stream of shell commands",
		input: pieces(toolChunk(call(0, "c", "shell", `{"commands":["a"`)), same(toolChunk(more(0, `,"a"`))),
			toolChunk(more(0, `]}`))+calledFor), work: streaming(Responses, func(r *reply) {
			r.names = map[string]ToolName{"shell": {Kind: ToolShell, Name: "shell"}}
		}),
	},
}
