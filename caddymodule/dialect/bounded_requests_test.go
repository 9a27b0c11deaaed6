package dialect

import "strings"

// These rows are about input of clients. Each row has its own list or text, whose elements are
// about as small as possible.

const (
	aMessage = `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"u"}`
	anInput  = `{"model":"m","input":[{"role":"user","content":"u"}`
	aChat    = `{"model":"m","messages":[{"role":"user","content":"u"}`
	aUser    = `{"role":"user","content":"some words"}`
)

// aFunction is a tool; # stands for its number.
const aFunction = `{"type":"function","name":"f#","description":"some words",` +
	`"parameters":{"type":"object","properties":{}}}`

var messagesRows = []boundedRow{
	{
		name: "system messages", input: listOf(aMessage+",", same(`{"role":"system","content":"some words"}`), `]}`),
		work: decoding(messagesOp),
	},
	{
		name: "system messages behind calls",
		input: listOf(aMessage+`,{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f"}]},`,
			same(`{"role":"system","content":"some words"}`), `]}`), work: decoding(messagesOp),
	},
	{
		name: "system messages behind an image",
		input: listOf(aMessage+`,{"role":"user","content":[{"type":"image","source":{"type":"base64",`+
			`"media_type":"image/png","data":"aaaa"}}]},`, same(`{"role":"system","content":"some words"}`), `]}`),
		work: decoding(messagesOp),
	},
	{name: "user messages", input: listOf(aMessage+",", same(aUser), `]}`), work: decoding(messagesOp)},
	{
		name: "assistant messages", input: listOf(aMessage+",", same(`{"role":"assistant","content":"some words"}`), `]}`),
		work: decoding(messagesOp),
	},
	{
		name: "turns", input: listOf(aMessage+",", same(aUser+`,{"role":"assistant","content":"some words"}`), `]}`),
		work: decoding(messagesOp), maximum: measuredElements / 2,
	},
	{name: "calls in a message", input: listOf(aMessage+`,{"role":"assistant","content":[`,
		numbered(`{"type":"tool_use","id":"#","name":"f","input":{}}`), `]}]}`), work: decoding(messagesOp)},
	{name: "calls of one id", input: listOf(aMessage+`,{"role":"assistant","content":[`,
		same(`{"type":"tool_use","id":"a","name":"f","input":{}}`), `]}]}`), work: decoding(messagesOp)},
	{
		name: "calls and results", input: listOf(aMessage+",",
			numbered(useOf("#")+`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"#","content":"r"}]}`), `]}`),
		work: decoding(messagesOp), maximum: measuredElements / 4,
	},
	{
		name: "results without calls",
		input: listOf(aMessage+`,{"role":"user","content":[`,
			numbered(`{"type":"tool_result","tool_use_id":"#","content":"r"}`), `]}]}`), work: decoding(messagesOp),
	},
	{
		name: "results of one call",
		input: listOf(aMessage+`,`+useOf("a")+`,{"role":"user","content":[`,
			same(`{"type":"tool_result","tool_use_id":"a","content":"r"}`), `]}]}`), work: decoding(messagesOp),
	},
	{name: "blocks of text", input: listOf(aMessage+`,{"role":"user","content":[`,
		same(`{"type":"text","text":"some words"}`), `]}]}`), work: decoding(messagesOp)},
	{
		name:  "blocks of an assistant",
		input: listOf(aMessage+`,{"role":"assistant","content":[`, same(`{"type":"text","text":"some words"}`), `]}]}`),
		work:  decoding(messagesOp),
	},
	{name: "blocks of thinking", input: listOf(aMessage+`,{"role":"assistant","content":[`,
		same(`{"type":"thinking","thinking":"some words"}`), `]}]}`), work: decoding(messagesOp)},
	{name: "blocks of a result", input: listOf(aMessage+`,`+useOf("a")+
		`,{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[`,
		same(`{"type":"text","text":"some words"}`), `]}]}]}`), work: decoding(messagesOp)},
	{
		name:  "blocks of the system",
		input: listOf(aMessage+`],"system":[`, same(`{"type":"text","text":"some words"}`), `]}`),
		work:  decoding(messagesOp),
	},
	{
		name: "images", input: listOf(aMessage+`,{"role":"user","content":[`,
			same(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}}`), `]}]}`),
		work: counting(messagesOp),
	},
	{
		name: "unknown blocks", input: listOf(aMessage+`,{"role":"user","content":[`, same(`{"type":"unknown"}`), `]}]}`),
		work: decoding(messagesOp),
	},
	{
		name: "parts of a document",
		input: listOf(aMessage+`,{"role":"user","content":[{"type":"document","source":{"type":"content","content":[`,
			same(`{"text":"some words"}`), `]}}]}]}`), work: decoding(messagesOp),
	},
	{
		name: "lines of a hosted tool",
		input: listOf(aMessage+`,{"role":"assistant","content":[{"type":"web_search_tool_result","content":[`,
			same(`{"title":"a page","url":"https://e.com"}`), `]}]}]}`), work: decoding(messagesOp),
	},
	{
		name: "tools", input: listOf(aMessage+`],"tools":[`,
			numbered(`{"name":"tool_#","description":"some words","input_schema":{"type":"object","properties":{}}}`), `]}`),
		work: decoding(messagesOp),
	},
	{
		name:  "tools without a schema",
		input: listOf(aMessage+`],"tools":[`, numbered(`{"name":"tool_#","description":"some words about it"}`), `]}`),
		work:  decoding(messagesOp),
	},
	{name: "tools of one name", input: listOf(aMessage+`],"tools":[`, same(`{"name":"f","description":"some words"}`),
		`]}`), work: decoding(messagesOp)},
	{
		name: "tools of which one is chosen",
		input: listOf(aMessage+`],"tool_choice":{"type":"tool","name":"tool_0"},"tools":[`,
			numbered(`{"name":"tool_#","description":"some words","input_schema":{"type":"object","properties":{}}}`), `]}`),
		work: decoding(messagesOp),
	},
	{
		name:  "members of a schema",
		input: listOf(aMessage+`],"tools":[{"name":"f","input_schema":{`, numbered(`"a#":1`), `}}]}`),
		work:  decoding(messagesOp),
	},
	{
		name: "stop sequences", input: listOf(aMessage+`],"stop_sequences":[`, same(`"stop"`), `]}`),
		work: decoding(messagesOp),
	},
	{name: "members of the body", input: listOf(aMessage+`],`, numbered(`"a#":1`), `}`), work: decoding(messagesOp)},
	{name: "members of one name", input: listOf(aMessage+`],`, same(`"temperature":1`), `}`), work: decoding(messagesOp)},
	{name: "escaped members", input: listOf(aMessage+`],`, numbered(`"\u0061#":1`), `}`), work: decoding(messagesOp)},
	{
		name: "members of a message", input: listOf(aMessage+`,{"role":"user","content":"u",`, numbered(`"a#":1`), `}]}`),
		work: decoding(messagesOp),
	},
	{name: "members of a block", input: listOf(aMessage+`,{"role":"user","content":[{"type":"text","text":"u",`,
		numbered(`"a#":1`), `}]}]}`), work: decoding(messagesOp)},
	{
		name: "members of an input",
		input: listOf(aMessage+`,{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{`,
			numbered(` "a#": 1`), `}}]}]}`), work: decoding(messagesOp),
	},
	{
		name: "a fault at the end", input: listOf(aMessage+",", same(aUser), `,{"role":"nobody"}]}`),
		work: decoding(messagesOp), fails: "messages.", maximum: measuredElements,
	},
	{name: "counted messages", input: listOf(aMessage+",", same(aUser), `]}`), work: counting(countOp), maximum: 8000},
}

// useOf is a message with one call.
func useOf(id string) string {
	return `{"role":"assistant","content":[{"type":"tool_use","id":"` + id + `","name":"f","input":{}}]}`
}

var responsesRows = []boundedRow{
	{
		name: "developer items", input: listOf(anInput+",", same(`{"role":"developer","content":"some words"}`), `]}`),
		work: decoding(responsesOp), maximum: measuredElements,
	},
	{name: "user items", input: listOf(anInput+",", same(aUser), `]}`), work: decoding(responsesOp)},
	{name: "function calls", input: listOf(anInput+",",
		numbered(`{"type":"function_call","call_id":"c#","name":"f","arguments":"{}"}`), `]}`), work: decoding(responsesOp)},
	{
		name: "function calls of other tools",
		input: listOf(anInput+",", numbered(`{"type":"function_call","id":"i#","call_id":"c#","name":"f#","namespace":"n",`+
			`"arguments":"{}"}`), `]}`), work: decoding(responsesOp),
	},
	{
		name: "function calls and outputs",
		input: listOf(anInput+",", numbered(`{"type":"function_call","call_id":"c#","name":"f","arguments":"{}"},`+
			`{"type":"function_call_output","call_id":"c#","output":"r"}`), `]}`),
		work: decoding(responsesOp), maximum: measuredElements / 2,
	},
	{name: "function calls before outputs", input: func(n int) string {
		outputs := listOf("", numbered(`{"type":"function_call_output","call_id":"c#","output":"r"}`), `]}`)
		return listOf(anInput+",", numbered(`{"type":"function_call","call_id":"c#","name":"f","arguments":"{}"}`),
			","+outputs(n))(n)
	}, work: decoding(responsesOp), maximum: measuredElements / 2},
	{name: "custom calls", input: listOf(anInput+",",
		numbered(`{"type":"custom_tool_call","call_id":"c#","name":"f","input":"x"}`), `]}`), work: decoding(responsesOp)},
	{
		name: "shell calls", input: listOf(anInput+",",
			numbered(`{"type":"local_shell_call","call_id":"c#","action":{"command":["ls"]}}`), `]}`),
		work: decoding(responsesOp),
	},
	{name: "reasoning items", input: listOf(anInput+",",
		same(`{"type":"reasoning","summary":[{"type":"summary_text","text":"some words"}]}`),
		`,{"role":"assistant","content":"a"}]}`), work: decoding(responsesOp)},
	{
		name: "summaries", input: listOf(anInput+`,{"type":"reasoning","summary":[`,
			same(`{"type":"summary_text","text":"some words"}`), `]},{"role":"assistant","content":"a"}]}`),
		work: decoding(responsesOp),
	},
	{name: "unknown items", input: listOf(anInput+",", same(`{"type":"unknown"}`), `]}`), work: decoding(responsesOp)},
	{
		name: "empty items", input: listOf(`{"model":"m","input":[`, same(`{}`), `]}`), work: decoding(responsesOp),
		fails: "input[0].role",
	},
	{
		name: "references to reasoning", input: listOf(anInput+",", numbered(`{"type":"item_reference","id":"rs_#"}`), `]}`),
		work: decoding(responsesOp),
	},
	{name: "content parts", input: listOf(anInput+`,{"role":"user","content":[`,
		same(`{"type":"input_text","text":"some words"}`), `]}]}`), work: decoding(responsesOp)},
	{name: "parts of an output", input: listOf(anInput+`,{"type":"function_call_output","call_id":"c","output":[`,
		same(`{"type":"input_text","text":"some words"}`), `]}]}`), work: decoding(responsesOp)},
	{name: "parts in a string", input: func(n int) string {
		parts := listOf(`[{"type":"input_image","image_url":"u"},`, same(`{"type":"input_text","text":"some words"}`), `]`)(n)
		return anInput + `,{"type":"function_call_output","call_id":"c","output":` + quoted(parts) + `}]}`
	}, work: decoding(responsesOp)},
	{name: "functions", input: listOf(anInput+`],"tools":[`,
		numbered(aFunction), `]}`), work: decoding(responsesOp)},
	{name: "wrapped functions", input: listOf(anInput+`],"tools":[`,
		numbered(`{"type":"function","function":{"name":"f#","description":"some words","parameters":{"type":"object",`+
			`"properties":{}}}}`), `]}`), work: decoding(responsesOp)},
	{name: "custom tools", input: listOf(anInput+`],"tools":[`,
		numbered(`{"type":"custom","name":"f#","description":"some words","format":{"type":"grammar","syntax":"lark",`+
			`"definition":"start: /.*/"}}`), `]}`), work: decoding(responsesOp)},
	{
		name: "functions of a namespace",
		input: listOf(anInput+`],"tools":[{"type":"namespace","name":"n","tools":[`,
			numbered(aFunction), `]}]}`), work: decoding(responsesOp),
	},
	{
		name: "namespaces", input: listOf(anInput+`],"tools":[`,
			numbered(`{"type":"namespace","name":"n#","tools":[{"type":"function","name":"f","description":"some words",`+
				`"parameters":{"type":"object","properties":{}}}]}`), `]}`),
		work: decoding(responsesOp), maximum: measuredElements / 2,
	},
	{
		name: "long names of functions",
		input: listOf(anInput+`],"tools":[`,
			numbered(`{"type":"function","name":"#`+strings.Repeat("f", 80)+`","parameters":{}}`), `]}`),
		work: decoding(responsesOp),
	},
	{name: "hosted tools", input: listOf(anInput+`],"tools":[{"type":"function","name":"f"},`,
		same(`{"type":"web_search"}`), `]}`), work: decoding(responsesOp)},
	{
		name: "members without a reader", input: listOf(`{"model":"m","input":"u","a":1,`, numbered(`"a#":1`), `}`),
		work: decoding(responsesOp),
	},
	{name: "hosted tools of the messages dialect", input: listOf(aMessage+`],"tools":[{"name":"f"},`,
		numbered(`{"type":"web_search_#"}`), `]}`), work: decoding(messagesOp)},
	{name: "edits", input: listOf(aMessage+`],"context_management":{"edits":[`,
		same(`{"type":"clear_tool_uses_1"}`), `]}}`), work: decoding(messagesOp)},
	{name: "members of a toolset", input: listOf(aMessage+`],"tools":[{"type":"browser_toolset_20260801","configs":{`,
		numbered(`"m#":{"enabled":true}`), `}}]}`), work: decoding(messagesOp)},
	{
		name: "toolsets", input: listOf(aMessage+`],"tools":[`, same(`{"type":"browser_toolset_20260801"}`), `]}`),
		work: decoding(messagesOp), maximum: measuredElements / 32,
	},
	{name: "additional tools", input: listOf(anInput+`,{"type":"additional_tools","tools":[`,
		numbered(aFunction), `]}]}`), work: decoding(responsesOp)},
	{
		name:  "additional tools that are none",
		input: listOf(anInput+`,{"type":"additional_tools","tools":[`, same(`1`), `]}]}`), work: decoding(responsesOp),
	},
	{
		name: "items with additional tools",
		input: listOf(anInput+`,`, numbered(`{"type":"additional_tools","tools":[{"type":"function","name":"f#",`+
			`"description":"some words","parameters":{}}]}`), `]}`), work: decoding(responsesOp), maximum: measuredElements / 2,
	},
	{name: "allowed tools", input: func(n int) string {
		allowed := listOf(`],"tool_choice":{"type":"allowed_tools","tools":[`,
			numbered(`{"type":"function","name":"f#"}`), `]}}`)(n)
		return listOf(anInput+`],"tools":[`,
			numbered(aFunction), allowed)(n)
	}, work: decoding(responsesOp), maximum: measuredElements / 2},
	{name: "allowed namespaces", input: func(n int) string {
		allowed := listOf(`],"tool_choice":{"type":"allowed_tools","tools":[`,
			numbered(`{"type":"namespace","name":"n#"}`), `]}}`)(n)
		return listOf(anInput+`],"tools":[`,
			numbered(aFunction), allowed)(n)
	}, work: decoding(responsesOp), maximum: measuredElements / 2},
	{
		name: "includes", input: listOf(anInput+`],"include":[`, same(`"reasoning.encrypted_content"`), `]}`),
		work: decoding(responsesOp),
	},
	{name: "metadata", input: listOf(anInput+`],"metadata":{`, numbered(`"a#":"b"`), `}}`), work: decoding(responsesOp)},
	{
		name: "members of reasoning", input: listOf(anInput+`],"reasoning":{`, numbered(`"a#":1`), `}}`),
		work: decoding(responsesOp),
	},
	{name: "members of text", input: listOf(anInput+`],"text":{`, numbered(`"a#":1`), `}}`), work: decoding(responsesOp)},
	{name: "members of the request", input: listOf(anInput+`],`, numbered(`"a#":1`), `}`), work: decoding(responsesOp)},
	{
		name: "members of an item", input: listOf(anInput+`,{"role":"user","content":"u",`, numbered(`"a#":1`), `}]}`),
		work: decoding(responsesOp),
	},
	{
		name:  "members of an action",
		input: listOf(anInput+`,{"type":"shell_call","call_id":"c","action":{`, numbered(` "a#": 1`), `}}]}`),
		work:  decoding(responsesOp),
	},
	{
		name: "a fault in the last item", input: listOf(anInput+",", same(aUser), `,{"role":"nobody"}]}`),
		work: decoding(responsesOp), fails: ".role: 'nobody'",
	},
}

var chatRows = []boundedRow{
	{name: "chat messages", input: listOf(aChat+",", same(aUser), `]}`), work: decoding(chatOp)},
	{name: "chat numbers as messages", input: listOf(aChat+",", same(`1`), `]}`), work: decoding(chatOp), maximum: 4000},
	{name: "chat parts", input: listOf(aChat+`,{"role":"user","content":[`, same(`{"type":"text","text":"some words"}`),
		`]}]}`), work: counting(chatOp), maximum: 8000},
	{name: "chat calls", input: listOf(aChat+`,{"role":"assistant","tool_calls":[`,
		same(`{"id":"a","function":{"name":"f","arguments":"{}"}}`), `]}]}`), work: counting(chatOp), maximum: 8000},
	{
		name: "chat images", input: listOf(aChat+`,{"role":"user","content":[`,
			same(`{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,/9j/4AAQSkZJRgABAQ"}}`), `]}]}`),
		work: counting(chatOp), maximum: 8000,
	},
	{name: "chat tools", input: listOf(aChat+`],"tools":[`, numbered(`{"type":"function","function":{"name":"f#"}}`),
		`]}`), work: counting(chatOp), maximum: 8000},
	{
		name: "chat developer messages", input: listOf(aChat+",", same(`{"role":"developer","content":"some words"}`), `]}`),
		work: decoding(chatOp),
	},
	{
		name:  "chat developer messages in turns",
		input: listOf(aChat+",", same(`{"role":"developer","content":"some words"},`+aUser), `]}`), work: decoding(chatOp),
		maximum: measuredElements / 2,
	},
	{name: "chat members", input: listOf(aChat+`],`, numbered(`"a#":1`), `}`), work: decoding(chatOp)},
	{
		name: "chat stream options", input: listOf(aChat+`],"stream":true,"stream_options":{`, numbered(`"a#":1`), `}}`),
		work: decoding(chatOp),
	},
}

// piecesOf is a request with a text of n pieces, as JSON.
func piecesOf(head, piece, tail string) func(n int) string {
	return func(n int) string { return head + `"` + strings.Repeat(piece, n) + `"` + tail }
}

// counted is the maximum size of texts whose tokens are counted. Of longer ones, only a part is
// counted.
const counted = 64 << 10

var textRows = []boundedRow{
	{
		name: "text", input: piecesOf(aMessage+`,{"role":"user","content":`, "some words ", `}]}`),
		work: decoding(messagesOp), maximum: 1 << 20,
	},
	{
		name: "escapes", input: piecesOf(aMessage+`,{"role":"user","content":`, `\u0001\n`, `}]}`),
		work: decoding(messagesOp), maximum: 1 << 20,
	},
	{
		name: "backslashes", input: piecesOf(aMessage+`,{"role":"user","content":`, `\\\"`, `}]}`),
		work: decoding(messagesOp), maximum: 1 << 20,
	},
	{
		name: "bytes that are no UTF-8", input: piecesOf(aMessage+`,{"role":"user","content":`, "\xff", `}]}`),
		work: decoding(messagesOp), maximum: 1 << 20,
	},
	{
		name: "type", input: piecesOf(anInput+`,{"role":"user","type":`, "some words ", `}]}`), work: decoding(responsesOp),
		maximum: 1 << 20,
	},
	{name: "arguments", input: piecesOf(anInput+`,{"type":"function_call","call_id":"a","name":"f","arguments":`,
		`[{\"a\":`, `}]}`), work: decoding(responsesOp), maximum: 1 << 20},
	{
		name:  "output that looks like parts",
		input: piecesOf(anInput+`,{"type":"function_call_output","call_id":"a","output":`, `[\"input_image\"`, `}]}`),
		work:  decoding(responsesOp), maximum: 1 << 20,
	},
	{
		name: "billing line", input: piecesOf(aMessage+`],"system":`, billing+` cch=00000; a=b;`, `}`),
		work: decoding(messagesOp), maximum: 1 << 19,
	},
	{
		name: "name of a tool", input: piecesOf(anInput+`],"tools":[{"type":"function","name":`, `\u00e9`, `}]}`),
		work: decoding(responsesOp), maximum: 1 << 20,
	},
	{
		name:  "namespace of a call",
		input: piecesOf(anInput+`,{"type":"function_call","call_id":"a","name":"f","namespace":`, `n`, `}]}`),
		work:  decoding(responsesOp), maximum: 1 << 20,
	},
	{name: "image", input: piecesOf(aMessage+
		`,{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":`,
		"iVBORw0KGgoAAAANSUhEUgAA", `}}]}]}`), work: decoding(messagesOp), maximum: 1 << 20},
	{
		name: "instructions", input: piecesOf(`{"model":"m","input":"u","instructions":`, "some words ", `}`),
		work: decoding(responsesOp), maximum: 1 << 20,
	},
}
