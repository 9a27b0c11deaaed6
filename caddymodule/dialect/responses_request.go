package dialect

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
)

// responsesCall is a request in the responses dialect.
type responsesCall struct {
	translation
	items            []inputItem // the whole input, what it refers to too
	toolItems        []int       // those of items that bring tools
	fields           fieldList   // of the item that is looked at
	upstreamNames    upstreamNames
	pendingReasoning []string          // not said yet: it belongs to what follows
	calls            map[string]string // call ids by the ids of their items
}

var _ Call = (*responsesCall)(nil)

// decodeResponses reads the body of POST /v1/responses, or of its
// input_tokens. What the client may send and a chat request cannot express is
// dropped: clients cannot be kept from sending it.
func decodeResponses(body []byte, env *Env) (Call, *Error) {
	fields, err := bodyFields(body)
	if err != nil {
		return nil, err
	}
	c := new(responsesCall)
	c.elements.ctx = env.Context
	c.env, c.dialect = env, Responses
	c.echo = make(map[string][]byte)
	for _, read := range []func(fieldList) *Error{
		c.readBasics, c.readUnsupported, c.readInput, c.readTools, c.readInstructions, c.readItems, c.readTrigger,
		c.readToolChoice, c.readLimit, c.readSampling, c.readReasoning, c.readText, c.readInclude, c.readEchoed,
	} {
		if err := read(fields); err != nil {
			return nil, err
		}
	}
	if c.compact {
		c.tools.clear()
	}
	c.complete(env, len(body))
	return c, nil
}

// responsesID is an id that the responses dialect allows.
func responsesID(id string) string {
	const limit = 64
	if len(id) > limit {
		return stableID(id)
	}
	return id
}

// readUnsupported refuses what cannot be honoured and must not be ignored.
func (c *responsesCall) readUnsupported(fields fieldList) *Error {
	for _, name := range [...]string{"conversation", "prompt"} {
		if given(fields, name) != nil {
			return invalid(name, "unsupported_parameter", "Unsupported parameter: %s. Send the whole conversation in input.", name)
		}
	}
	if on, err := c.boolean(fields, "background"); err != nil {
		return err
	} else if on {
		return invalid("background", "unsupported_parameter", "Unsupported parameter: background. Responses are made while the client waits.")
	}
	return nil
}

// readBasics reads model, stream, and whether the response is to be kept.
func (c *responsesCall) readBasics(fields fieldList) *Error {
	if err := c.readModel(fields); err != nil {
		return err
	}
	keep, err := c.boolean(fields, "store")
	if keep = keep || given(fields, "store") == nil; keep && c.env.Kept.Keeps() {
		c.keep = c.keepResponse
	}
	return err
}

// keepResponse has a response kept with its input and output items.
func (c *responsesCall) keepResponse(id string, body []byte, output [][]byte) {
	var input [][]byte
	if !c.compact { // else what it goes on from is the summary alone
		for _, item := range c.items {
			input = append(input, withID(item.raw, c.env.NewID))
		}
	}
	c.env.Kept.Keep(id, kept.Response{Model: c.model, Body: body, Input: input, Output: output})
}

// withID is an item with an id, and with its type: clients of kept items need
// them, and may leave them out of what they send.
func withID(raw []byte, newID func(prefix string) string) []byte {
	f := readFields(raw)
	id, kind := f.text("id"), itemType(f)
	if id != "" && f.text("type") != "" {
		return raw
	}
	if id == "" {
		prefix := "item_"
		if kind == "message" {
			prefix = "msg_"
		}
		id = newID(prefix)
	}
	b := jsonscan.AppendQuoted([]byte(`{"id":`), id)
	b = jsonscan.AppendQuoted(append(b, `,"type":`...), kind)
	for m := jsonscan.Checked(raw); m.Next(); {
		if name := string(m.Name()); name != "id" && name != "type" {
			b = append(append(b, ','), m.Key.Of(raw)...)
			b = append(append(b, ':'), m.Raw()...)
		}
	}
	return append(b, '}')
}

// readInstructions reads the system prompt.
func (c *responsesCall) readInstructions(fields fieldList) *Error {
	raw, err := c.typed(fields, "instructions", "instructions", aString)
	if raw == nil {
		return err
	}
	c.noteEcho("instructions", raw)
	c.conversation.addSystem(jsonscan.Unquote(raw))
	return nil
}

// readLimit reads how long the answer may be.
func (c *responsesCall) readLimit(fields fieldList) *Error {
	const name = "max_output_tokens"
	raw, err := c.typed(fields, name, name, aWholeNumber)
	if raw == nil {
		return err
	}
	if n, _ := jsonscan.Integer(raw); n < 1 {
		return invalid(name, "", "Invalid value for %s: it must be 1 or more.", name)
	}
	c.noteEcho(name, raw)
	c.addParameter("max_tokens", raw)
	return nil
}

// readSampling reads the parameters that the upstream takes as they are.
func (c *responsesCall) readSampling(fields fieldList) *Error {
	names := [...]string{"temperature", "top_p", "presence_penalty", "frequency_penalty"}
	for _, name := range names {
		c.noteEcho(name, given(fields, name))
	}
	return c.addNumbers(fields, names[:]...)
}

// readReasoning reads how much the model is to think.
func (c *responsesCall) readReasoning(fields fieldList) *Error {
	raw, err := c.typed(fields, "reasoning", "reasoning", anObject)
	if raw == nil {
		return err
	}
	effort, err := c.typed(readFields(raw), "effort", "reasoning.effort", aString)
	if err != nil {
		return err
	}
	if effort != nil {
		c.askEffort(effortLevel(jsonscan.Unquote(effort)))
	}
	c.noteEcho("reasoning", withMembers(raw, "effort", "null", "summary", "null"))
	return nil
}

// readText reads the form that the answer is to have.
func (c *responsesCall) readText(fields fieldList) *Error {
	raw, err := c.typed(fields, "text", "text", anObject)
	if raw == nil {
		return err
	}
	f := readFields(raw)
	format := given(f, "format")
	if c.compact { // a summary is plain text
		format = nil
	}
	if format == nil {
		if f.get("format") == nil {
			c.noteEcho("text", withMembers(raw, "format", `{"type":"text"}`))
		}
		return nil
	}
	c.noteEcho("text", raw)
	if format[0] != '{' {
		return wrongType("text.format", "an object", format)
	}
	f = readFields(format)
	switch kind := f.text("type"); kind {
	case "text":
	case "json_object":
		c.addParameter("response_format", []byte(`{"type":"json_object"}`))
	case "json_schema":
		return c.readSchema(f)
	default:
		return invalid("text.format.type", "", "Invalid value for text.format.type: '%s'. It must be text, json_object or json_schema.", show(kind))
	}
	return nil
}

// readSchema reads the schema that the answer is to have.
func (c *responsesCall) readSchema(format fieldList) *Error {
	schema, err := c.typed(format, "schema", "text.format.schema", anObject)
	if err != nil {
		return err
	}
	if schema == nil {
		return missing("text.format.schema")
	}
	name := format.text("name")
	if name == "" {
		name = "output"
	}
	b := jsonscan.AppendQuoted([]byte(`{"type":"json_schema","json_schema":{"name":`), name)
	b = append(append(b, `,"schema":`...), schema...)
	if strict := format.get("strict"); jsonscan.IsBool(strict) {
		b = append(append(b, `,"strict":`...), strict...)
	}
	if description := format.get("description"); jsonscan.IsString(description) {
		b = append(append(b, `,"description":`...), description...)
	}
	c.addParameter("response_format", append(b, "}}"...))
	return nil
}

// readInclude reads what the answer is to contain in addition.
func (c *responsesCall) readInclude(fields fieldList) *Error {
	probabilities := false
	raw, err := c.typed(fields, "include", "include", anArray)
	if err != nil {
		return err
	}
	if raw != nil {
		for m := jsonscan.Checked(raw); m.Next(); {
			if !jsonscan.IsString(m.Raw()) {
				return wrongType(element("include", m.Index), "a string", m.Raw())
			}
			switch jsonscan.Unquote(m.Raw()) {
			case "reasoning.encrypted_content":
				c.encrypted = true
			case "message.output_text.logprobs":
				probabilities = true
			}
		}
	}
	const most = 20
	top, err := c.typed(fields, "top_logprobs", "top_logprobs", aWholeNumber)
	if err != nil {
		return err
	}
	if top != nil {
		n, _ := jsonscan.Integer(top)
		if n < 0 || n > most {
			return invalid("top_logprobs", "", "Invalid value for top_logprobs: it must be between 0 and %d.", most)
		}
		c.noteEcho("top_logprobs", top)
		if n == 0 {
			top = nil
		}
	}
	if c.logprobs = (probabilities || top != nil) && !c.compact; c.logprobs {
		c.addParameter("logprobs", []byte("true"))
	}
	if c.logprobs && top != nil {
		c.addParameter("top_logprobs", top)
	}
	return nil
}

// readEchoed reads what is only sent back.
func (c *responsesCall) readEchoed(fields fieldList) *Error {
	for _, f := range [...]struct {
		name string
		want valueType
	}{
		{"parallel_tool_calls", aBool}, {"store", aBool}, {"truncation", aString}, {"metadata", anObject}, {"previous_response_id", aString},
	} {
		raw, err := c.typed(fields, f.name, f.name, f.want)
		if err != nil {
			return err
		}
		c.noteEcho(f.name, raw)
	}
	for _, name := range [...]string{"safety_identifier", "prompt_cache_key"} {
		if raw := given(fields, name); jsonscan.IsString(raw) {
			c.noteEcho(name, raw)
		}
	}
	if raw := given(fields, "max_tool_calls"); jsonscan.IsNumber(raw) {
		c.noteEcho("max_tool_calls", raw)
	}
	if raw, ok := c.echo["parallel_tool_calls"]; ok {
		c.parallel = string(raw)
	}
	return nil
}

// previousNotFound is the answer to the id of a response that is not kept.
func previousNotFound(id string, keeps bool) *Error {
	why := "This gateway keeps no responses"
	if keeps {
		why = "Responses are kept for " + strconv.Itoa(int(kept.TTL/time.Minute)) + " minutes"
	}
	message := []string{fmt.Sprintf("Previous response with id '%s' not found.", show(id)), why + "; send the whole conversation in input instead of previous_response_id."}
	return invalid("previous_response_id", "previous_response_not_found", "%s", strings.Join(message, " "))
}
