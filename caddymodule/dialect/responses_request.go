package dialect

import (
	"strconv"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
)

// responsesCall is a request in the responses dialect.
type responsesCall struct {
	translation
	references       []Reference
	items            []inputItem // the input; with the items that it refers to, once these are known
	toolItems        []int       // indexes of the items with tools
	upstreamNames    upstreamNames
	pendingReasoning []string          // of the assistant's next content
	callIDs          map[string]string // call ids by item id
}

var _ Call = (*responsesCall)(nil)

// readResponsesHead reads the head of CreateResponse or CountInputTokens, and collects what the request refers to.
func readResponsesHead(op Operation, body []byte, env *Env) (Head, *Error) {
	c := new(responsesCall)
	c.countOnly = op.Kind == CountInputTokens
	c.echo = make(map[string][]byte)
	err := c.readHead(body, env, Responses)
	if err == nil {
		c.read(c.readStore, c.readUnsupported, c.readInput)
	}
	return Head{Model: c.model, References: c.references, request: c}, err
}

// decode reads the rest of a request. Fields that a chat request cannot express are dropped, because clients send them
// anyway.
func (c *responsesCall) decode(o compat.Options) *Error {
	c.insertReferences()
	return c.readRest(o, c.readInstructions, c.readTools, c.readItems, c.readTrigger, c.needTool, c.readToolChoice,
		c.readLimit, c.readSampling, c.readReasoning, c.readText, c.readInclude, c.readEchoed)
}

// responsesRequest are the names of the members of a request that are read, and of those that mean nothing to a model.
var responsesRequest = []string{
	"background", "context_management", "conversation", "frequency_penalty", "include", "input", "instructions",
	"max_output_tokens", "max_tool_calls", "metadata", "model", "parallel_tool_calls", "presence_penalty",
	"previous_response_id", "prompt", "prompt_cache_key", "reasoning", "safety_identifier", "store", "stream",
	"temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation",
	// ignored
	"access_programs", "client_metadata", "image", "prompt_cache_options", "prompt_cache_retention", "service_tier",
	"stream_options", "user",
}

// responsesFields are the names of the members of other objects that are read.
var responsesFields = []string{
	// items and their content
	"action", "arguments", "call_id", "content", "detail", "encrypted_content", "file_data", "file_id", "file_url",
	"filename", "id", "image_url", "input_audio", "name", "namespace", "operation", "output", "phase", "refusal", "role",
	"status", "summary", "type",
	// tools and other objects
	"allowed_callers", "async", "definition", "description", "effort", "format", "function", "mode", "output_schema",
	"parameters", "schema", "strict", "syntax",
	// arguments of calls, probabilities
	"command", "commands", "diff", "env", "max_output_length", "path", "timeout_ms", "workdir", "working_directory",
	"bytes", "logprob", "token",
}

// responsesID returns id, or a replacement if the responses dialect does not allow it.
func responsesID(id string) string {
	const limit = 64
	if len(id) > limit {
		return stableID(id)
	}
	return id
}

// unsupported fails because of a field that is not supported and must not be ignored.
func (c *responsesCall) unsupported(name, advice string) {
	c.fail(invalid(name, "unsupported_parameter", "Unsupported parameter: %s. %s", name, advice))
}

// readUnsupported rejects unsupported fields, and names those that are dropped.
func (c *responsesCall) readUnsupported(f fieldList) {
	c.dropEdits("context_management", f.given("context_management"))
	for _, name := range [...]string{"conversation", "prompt"} {
		if f.given(name) != nil {
			c.unsupported(name, "Send the whole conversation in input.")
		}
	}
	if c.boolean(f, "background") {
		c.unsupported("background", "Background responses are not supported. Omit it, and wait for the response.")
	}
}

// readStore reads whether to keep the response.
func (c *responsesCall) readStore(f fieldList) {
	keep := c.boolean(f, "store") || f.given("store") == nil
	if keep && c.env.Kept.Keeps() {
		c.keep = c.keepResponse
	}
}

// keepResponse keeps a response with its input and output items.
func (c *responsesCall) keepResponse(id string, body []byte, output [][]byte) {
	var input [][]byte
	if !c.compact { // the output of a compaction replaces its input
		for _, item := range c.items {
			input = append(input, withID(item.raw, c.env.NewID))
		}
	}
	c.env.Kept.Keep(id, kept.Response{Model: c.model, Body: body, Input: input, Output: output})
}

// withID returns an item with its id and type, which clients of kept items require. They
// are optional in requests.
func withID(raw []byte, newID func(prefix string) string) []byte {
	f := readFields(raw)
	id, kind := f.text("id"), itemType(f)
	if id == "" {
		prefix := "item_"
		if kind == "message" {
			prefix = "msg_"
		}
		id = newID(prefix)
	}
	return withMembers(raw, "id", string(jsonscan.AppendQuoted(nil, id)), "type", string(jsonscan.AppendQuoted(nil, kind)))
}

// echoed returns a field like typed. The response repeats the field.
func (c *responsesCall) echoed(f fieldList, name string, want valueType) []byte {
	raw := c.typed(f, name, want)
	c.noteEcho(name, raw)
	return raw
}

// readInstructions reads the system prompt.
func (c *responsesCall) readInstructions(f fieldList) {
	c.conversation.addSystem(jsonscan.String(c.echoed(f, "instructions", aString)))
}

// readLimit reads the maximum number of output tokens.
func (c *responsesCall) readLimit(f fieldList) {
	const name = "max_output_tokens"
	raw := c.echoed(f, name, aWholeNumber)
	if raw == nil {
		return
	}
	if c.output, _ = jsonscan.Integer(raw); c.output < 1 {
		c.badValue(name, "it must be 1 or more.")
	}
}

// readSampling reads the parameters that are passed to the upstream unchanged.
func (c *responsesCall) readSampling(f fieldList) {
	names := [...]string{"temperature", "top_p", "presence_penalty", "frequency_penalty"}
	for _, name := range names {
		c.noteEcho(name, f.given(name))
	}
	c.addNumbers(f, names[:]...)
}

// readReasoning reads the reasoning effort.
func (c *responsesCall) readReasoning(f fieldList) {
	raw := c.typed(f, "reasoning", anObject)
	if raw == nil {
		return
	}
	if effort := c.typed(readFields(raw), "reasoning.effort", aString); effort != nil {
		c.askEffort(jsonscan.Unquote(effort), true)
	}
	for _, name := range [...]string{"context", "mode"} {
		if value := jsonscan.Text(raw, name); value != "" && value != "auto" && value != "standard" {
			c.drop("reasoning."+name, value)
		}
	}
	c.noteEcho("reasoning", withMembers(raw, "effort", "null", "summary", "null"))
}

// readText reads the format of the answer.
func (c *responsesCall) readText(f fieldList) {
	raw := c.typed(f, "text", anObject)
	if raw == nil {
		return
	}
	text := readFields(raw)
	if c.compact && text.given("format") != nil { // a summary is plain text
		return
	}
	c.noteEcho("text", withMembers(raw, "format", `{"type":"text"}`))
	raw = c.typed(text, "text.format", anObject)
	if raw == nil {
		return
	}
	format := readFields(raw)
	switch kind := format.text("type"); kind {
	case "text":
	case "json_object":
		c.addParameter("response_format", []byte(`{"type":"json_object"}`))
	case "json_schema":
		c.readSchema(format)
	default:
		c.badValue("text.format.type", "'%s'. It must be text, json_object or json_schema.", show(kind))
	}
}

// readSchema reads the schema of the answer.
func (c *responsesCall) readSchema(f fieldList) {
	schema := c.typed(f, "text.format.schema", anObject)
	if schema == nil {
		c.missing("text.format.schema")
	}
	c.addSchema(f.text("name"), schema, f.get("strict"), f.get("description"))
}

// readInclude reads which optional parts the answer contains.
func (c *responsesCall) readInclude(f fieldList) {
	probabilities := false
	if raw := c.typed(f, "include", anArray); raw != nil {
		for m := jsonscan.Checked(raw); m.Next(); {
			if !jsonscan.IsString(m.Raw()) {
				c.wrongType(element("include", m.Index), aString.name, m.Raw())
				return
			}
			switch jsonscan.Unquote(m.Raw()) {
			case "reasoning.encrypted_content":
				c.encrypted = true
			case "message.output_text.logprobs":
				probabilities = true
			}
		}
	}
	const maxTop = 20
	top := c.echoed(f, "top_logprobs", aWholeNumber)
	n, _ := jsonscan.Integer(top)
	if n < 0 || n > maxTop {
		c.badValue("top_logprobs", "it must be between 0 and %d.", maxTop)
	}
	if c.logprobs = (probabilities || n > 0) && !c.compact; !c.logprobs {
		return
	}
	c.addParameter("logprobs", []byte("true"))
	if n > 0 {
		c.addParameter("top_logprobs", top)
	}
}

// readEchoed reads the fields that are only repeated in the response.
func (c *responsesCall) readEchoed(f fieldList) {
	c.parallel = string(c.echoed(f, "parallel_tool_calls", aBool))
	c.echoed(f, "store", aBool)
	c.echoed(f, "truncation", aString)
	c.echoed(f, "metadata", anObject)
	c.echoed(f, "previous_response_id", aString)
	for _, name := range [...]string{"safety_identifier", "prompt_cache_key"} {
		if raw := f.given(name); jsonscan.IsString(raw) {
			c.noteEcho(name, raw)
		}
	}
	if raw := f.given("prompt_cache_key"); jsonscan.IsString(raw) {
		c.cacheKey = raw
	}
	if raw := f.given("max_tool_calls"); jsonscan.IsNumber(raw) {
		c.noteEcho("max_tool_calls", raw)
	}
}

// previousNotFound is the error for a previous response that is not kept.
func previousNotFound(id string, keeps bool) *Error {
	why := "This gateway does not keep responses"
	if keeps {
		why = "Responses are kept for " + strconv.Itoa(int(kept.TTL/time.Minute)) +
			" minutes by the gateway that created them, those with more than " + byteSize(kept.MaxSize) +
			" of input and output not at all"
	}
	return invalid("previous_response_id", "previous_response_not_found",
		"Previous response with id '%s' not found. %s; send the whole conversation in input instead of previous_response_id.",
		show(id), why)
}
