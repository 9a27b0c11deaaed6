// Package tinymodel writes a small GGUF language model whose replies are known
// in advance. A real model server loads it like any other model, so that tests
// meet the server's real HTTP surface, tokenizer, chat template, sampling,
// streaming and tool-call parsing without downloading weights.
//
// The model is an ordinary "llama" transformer:
//
//   - Every token has a random ±1 code. The output row of token j is the sum of
//     the codes of the tokens that j should follow. So the model is a nearly
//     deterministic table of successors, which recites scripts.
//   - Each script is divided into tokens that no other script has, so that a
//     successor is never ambiguous (vocab.go).
//   - The chat template ends the last message with a control token
//     <|route:NAME|>. One attention head finds it from any later position and
//     selects the first token of the script NAME. Position does not matter,
//     because that head uses a rotary pair of nearly zero frequency (weights.go).
//   - A constant part of every code has a bias per token, so that output that is
//     forced by a grammar (a JSON schema, tool_choice "required") ends soon.
//
// The last message selects the script. A marker such as [[long]] in it selects
// the script of that name. Without a marker, a user message in a request with
// tools selects "call", a tool result "done", and any other message "answer".
package tinymodel

import _ "embed" // the chat template and the tokenizer's corpus

// Answer is the default reply: 38 tokens, then finish_reason "stop".
const Answer = "Hello! I am tinyscript, a very small language model that runs inside a real model server. " +
	"My weights were written by a program, so every reply is this same short paragraph. " +
	"Nothing I say is interesting, but each token takes a genuine trip through the network. Goodbye."

// Done is the reply after a tool result.
const Done = "The tool has answered, and its result is now part of our conversation. No further calls are needed; " +
	"that is all."

// Unicode is the reply to [[unicode]]. Its tokens split runes, so a server that streams it must keep bytes
// back.
const Unicode = "Grüße, naïve façade — “quotes”… 你好，世界。 こんにちは 🦙🚀👩‍👩‍👧‍👦 עברית العربية \u200b zero-width, e\u0301 " +
	"combining, 𝔘𝔫𝔦 ends."

// SSE is the reply to [[sse]]: text that looks like an event stream.
const SSE = "Next comes text that looks like a stream:\n\ndata: {\"choices\":[]}\n\ndata: [DONE]\n\nevent: error\n: " +
	"comment\n\nid: 7\nretry: 1\n\nand this is still the same reply."

const (
	callParis = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>"
	callTokyo = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Tokyo\"}}\n</tool_call>"
)

// chatTemplate is the model's Jinja chat template; ROUTES stands for the list
// of script names.
//
//go:embed chat_template.jinja
var chatTemplate string

// corpus trains the tokenizer, so that ordinary English takes a plausible
// number of tokens.
//
//go:embed corpus.txt
var corpus string

// A script is the reply for one route, with special tokens as text.
type script struct {
	name string
	text string
	loop bool // after the end, start over instead of ending the turn
}

// scripts lists every route; the first is the one taken without a marker.
func scripts() []script {
	return []script{
		{name: "answer", text: Answer},
		{name: "done", text: Done},
		{name: "call", text: callParis},
		{name: "saycall", text: "Let me look that up first.\n" + callParis},
		{name: "parallel", text: callParis + "\n" + callTokyo},
		{name: "badcall", text: "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Par"},
		{name: "think", text: "<think>\nThe user wants something. I should ponder briefly before speaking, then give a " +
			"conclusion.\n</think>\n\nAfter some thought: forty-two."},
		{name: "thinkcall", text: "<think>\nA tool would help here, therefore I will use it.\n</think>\n\n" + callParis},
		{name: "long", loop: true, text: "one two three four five six seven eight nine ten eleven twelve thirteen fourteen " +
			"fifteen sixteen " +
			"seventeen eighteen nineteen twenty, and then the counting starts over again " +
			"from the beginning without any pause:\n"},
		{name: "unicode", text: Unicode},
		{name: "sse", text: SSE},
		{name: "empty", text: ""},
	}
}
