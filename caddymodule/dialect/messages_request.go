package dialect

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// messagesCall is a request in the messages dialect.
type messagesCall struct{ translation }

var _ Call = (*messagesCall)(nil)

// decodeMessages reads the body of POST /v1/messages, or of its count_tokens,
// which generates nothing and needs no max_tokens.
func decodeMessages(body []byte, env *Env, generate bool) (Call, *Error) {
	fields, err := bodyFields(body)
	if err != nil {
		return nil, err
	}
	c := new(messagesCall)
	c.elements.ctx = env.Context
	c.env, c.dialect = env, Messages
	for _, read := range []func(fieldList) *Error{
		c.readBasics, c.readUnsupported, c.readSystem, c.readMessages, c.readTools, c.readToolChoice, c.readFormat, c.readEffort,
	} {
		if err := read(fields); err != nil {
			return nil, err
		}
	}
	if err := c.readSampling(fields, generate); err != nil {
		return nil, err
	}
	c.complete(env, len(body))
	return c, nil
}

// bodyFields reads the members of a request body, and checks its whole
// grammar.
func bodyFields(body []byte) (fieldList, *Error) {
	var fields fieldList
	m := jsonscan.Object(body)
	if m.Err() != nil {
		return nil, notAnObject(body)
	}
	for m.Next() {
		fields.note(&m)
	}
	if !m.Whole() {
		return nil, invalid("", "", "The request body is not valid JSON: %v.", m.Err())
	}
	return fields, nil
}

// at is the answer to a fault at a path of the body, in this API's style.
func at(path, format string, args ...any) *Error {
	e := invalid(path, "", format, args...)
	e.Message = path + ": " + e.Message
	return e
}

// messagesID is an id that the messages dialect allows.
func messagesID(id string) string {
	ok := len(id) > 0 && len(id) <= 64
	for i := 0; ok && i < len(id); i++ {
		c := id[i]
		ok = 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
	}
	if !ok {
		return stableID(id)
	}
	return id
}

// readUnsupported refuses what cannot be honoured and must not be ignored.
func (c *messagesCall) readUnsupported(fields fieldList) *Error {
	if given(fields, "thread") != nil {
		// With these details SDKs fall back to sending the whole history.
		e := at("thread", "message threads are not supported; send the whole conversation in messages")
		e.details = `{"error_code":"thread_unsupported_request","unsupported":["model"]}`
		return e
	}
	if raw := given(fields, "mcp_servers"); raw != nil && jsonscan.IsFilled(raw) {
		return at("mcp_servers", "not supported by this deployment")
	}
	return nil
}

// readBasics reads model, stream and thinking.
func (c *messagesCall) readBasics(fields fieldList) *Error {
	if raw := given(fields, "thinking"); raw != nil && raw[0] == '{' {
		c.omitThinking = jsonscan.Text(raw, "display") == "omitted"
	}
	return c.readModel(fields)
}

// readSystem reads the system prompt: a string, or blocks of text.
func (c *messagesCall) readSystem(fields fieldList) *Error {
	raw := given(fields, "system")
	if raw == nil {
		return nil
	}
	return c.addSystemContent(raw, &fieldPath{name: "system", dots: true})
}

// addSystemContent adds the content of a system prompt or message.
func (c *messagesCall) addSystemContent(raw []byte, path *fieldPath) *Error {
	if jsonscan.IsString(raw) {
		c.conversation.addSystem(cutBillingLine(jsonscan.Unquote(raw), true))
		return nil
	}
	if raw[0] != '[' {
		return at(path.String(), "Input should be a string or a list of text blocks, not %s", jsonscan.TypeName(raw))
	}
	var texts []string
	for m := jsonscan.Checked(raw); m.Next(); {
		block, here := m.Raw(), path.element(m.Index)
		if err := c.elements.add(); err != nil {
			return err
		}
		if block[0] != '{' {
			return at(here.String(), "Input should be a text block, not %s", jsonscan.TypeName(block))
		}
		f := readFields(block)
		if f.text("type") != "text" {
			if path.in != nil {
				continue // clients report changes of tools in between
			}
			return at(here.of("type"), "only text blocks are allowed here")
		}
		if text := cutBillingLine(f.text("text"), false); text != "" {
			texts = append(texts, text)
		}
	}
	c.conversation.addSystem(strings.Join(texts, "\n\n"))
	return nil
}

// billing is how a line begins that a client puts in front of its system
// prompt. It changes at each request, and would spoil the upstream's cache.
const billing = "x-anthropic-billing-header:"

// maxBilling is how long such a line is at most, without the text behind it.
const maxBilling = 4 << 10

// billingNonce is what such a line ends in, as a rule, and what else it may
// hold behind that.
var billingNonce = regexp.MustCompile(`cch=[0-9a-f]{5};([ ]*[a-z_]+=[^;\n]*;)*[ ]?`)

// cutBillingLine takes the billing line off the front of a system text. In a
// prompt that is one string, the text may follow on the same line.
func cutBillingLine(text string, whole bool) string {
	if !strings.HasPrefix(text, billing) {
		return text
	}
	line, rest, _ := strings.Cut(text, "\n")
	if end := billingNonce.FindStringIndex(line[:min(len(line), maxBilling)]); whole && end != nil && end[1] < len(line) {
		return text[end[1]:]
	}
	return rest
}

// readMessages reads the conversation.
func (c *messagesCall) readMessages(fields fieldList) *Error {
	raw, err := c.typed(fields, "messages", "messages", anArray)
	if err != nil {
		return err
	}
	if !jsonscan.IsFilled(raw) {
		return at("messages", "at least one message is required")
	}
	path := &fieldPath{name: "messages", dots: true}
	for list := c.objects(raw); list.next(path, &err); {
		here := path.element(list.Index)
		err = c.readMessage(readFields(list.Raw()), &here)
	}
	c.conversation.ensureMessage()
	return err
}

// readMessage reads one message.
func (c *messagesCall) readMessage(f fieldList, path *fieldPath) *Error {
	content := given(f, "content")
	if content == nil {
		content = []byte(`""`)
	}
	if !jsonscan.IsString(content) && content[0] != '[' {
		return at(path.of("content"), "Input should be a string or a list of blocks, not %s", jsonscan.TypeName(content))
	}
	inside := path.member("content")
	switch role := f.text("role"); role {
	case "system":
		return c.addSystemContent(content, &inside)
	case "user":
		return c.readUser(content, &inside)
	case "assistant":
		return c.readAssistant(content, &inside)
	default:
		return at(path.of("role"), "Input should be 'user', 'assistant' or 'system', not '%s'", show(role))
	}
}

// readSampling reads the limits and parameters of the answer, and writes them
// in a fixed order.
func (c *messagesCall) readSampling(fields fieldList, generate bool) *Error {
	limit, err := c.typed(fields, "max_tokens", "max_tokens", aWholeNumber)
	if err != nil {
		return err
	}
	if limit == nil && generate {
		return c.missing("max_tokens")
	}
	if limit != nil {
		if n, _ := jsonscan.Integer(limit); n < 1 {
			return at("max_tokens", "Input should be greater than or equal to 1")
		}
		c.addParameter("max_tokens", limit)
	}
	if err := c.addNumbers(fields, "temperature", "top_p", "top_k"); err != nil {
		return err
	}
	return c.readStop(fields)
}

// readStop reads the stop sequences. White space alone is none: the API drops
// it, and a model server would stop at the first line.
func (c *messagesCall) readStop(fields fieldList) *Error {
	raw, err := c.typed(fields, "stop_sequences", "stop_sequences", valueType{"a list of strings", anArray.is})
	if raw == nil {
		return err
	}
	var stops []byte
	for m := jsonscan.Checked(raw); m.Next(); {
		if !jsonscan.IsString(m.Raw()) {
			return c.wrongType("stop_sequences."+strconv.Itoa(m.Index), aString.name, m.Raw())
		}
		if strings.TrimSpace(jsonscan.Unquote(m.Raw())) != "" {
			stops = append(append(stops, ','), m.Raw()...)
		}
	}
	if len(stops) > 0 {
		stops[0] = '['
		c.addParameter("stop", append(stops, ']'))
	}
	return nil
}

// readFormat reads the schema that the answer is to have.
func (c *messagesCall) readFormat(fields fieldList) *Error {
	path, format := "output_config.format", []byte(nil)
	if raw := given(fields, "output_config"); raw != nil && raw[0] == '{' {
		format = given(readFields(raw), "format")
	}
	if format == nil {
		path, format = "output_format", given(fields, "output_format")
	}
	if format == nil {
		return nil
	}
	schema := []byte(nil)
	if format[0] == '{' && jsonscan.Text(format, "type") == "json_schema" {
		schema = given(readFields(format), "schema")
	}
	if schema == nil || schema[0] != '{' {
		return at(path, "Input should be {\"type\":\"json_schema\",\"schema\":{…}}")
	}
	b := append([]byte(`{"type":"json_schema","json_schema":{"name":"output","schema":`), schema...)
	c.addParameter("response_format", append(b, `,"strict":true}}`...))
	return nil
}
