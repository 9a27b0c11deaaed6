package dialect

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// messagesCall is a request in the messages dialect.
type messagesCall struct{ translation }

var _ Call = (*messagesCall)(nil)

// readMessagesHead reads the head of CreateMessage or CountTokens.
func readMessagesHead(op Operation, body []byte, env *Env) (Head, *Error) {
	c := new(messagesCall)
	c.countOnly = op.Kind == CountTokens
	err := c.readHead(body, env, Messages)
	return Head{Model: c.model, request: c}, err
}

func (c *messagesCall) decode(o compat.Options) *Error {
	return c.readRest(o, c.readUnsupported, c.readSystem, c.readTools, c.readMessages, c.needTool, c.readToolChoice,
		c.readFormat, c.readThinking, c.readSampling, c.readSafeguards)
}

// messagesRequest are the names of the members of a request that are read, and of those that mean nothing to a model.
var messagesRequest = []string{
	"container", "context_management", "max_tokens", "mcp_servers", "messages", "model", "output_config", "output_format",
	"safeguards", "stop_sequences", "stream", "system", "temperature", "thinking", "thread", "tool_choice", "tools",
	"top_k", "top_p",
	// ignored
	"anthropic_beta", "anthropic_version", "betas", "cache_control", "diagnostics",
	"fallback_credit_token", "fallbacks", "inference_geo", "metadata", "service_tier", "speed", "user_profile_id",
}

// messagesFields are the names of the members of other objects that are read.
var messagesFields = []string{
	// messages and their content
	"citations", "content", "context", "data", "definition", "id", "input", "is_error", "media_type", "name", "role",
	"signature", "source", "state_changes", "tabs", "text", "title", "tool", "tool_changes", "tool_name", "tool_use_id",
	"toolset_name", "type", "url",
	// tools and other objects
	"allowed_callers", "classifier_context", "configs", "description", "disable_parallel_tool_use", "display_height_px",
	"display_number", "display_width_px", "enable_zoom", "format", "input_examples", "input_schema", "max_characters",
	"strict",
}

// messagesMissing is the error for a missing required field.
func messagesMissing(path string) *Error { return invalid(path, "", "%s: Field required", path) }

// messagesWrongType is the error for a field of the wrong type.
func messagesWrongType(path, want string, raw []byte) *Error {
	return invalid(path, "", "%s: Input should be %s, not %s", path, want, jsonscan.TypeName(raw))
}

// messagesID returns id, or a replacement if the messages dialect does not allow it.
func messagesID(id string) string {
	if !isPlain(id, "_-") {
		return stableID(id)
	}
	return id
}

// isPlain reports whether a name has 1 to 64 letters, digits and others, all ASCII.
func isPlain(name, others string) bool {
	return name != "" && len(name) <= 64 && !strings.ContainsFunc(name, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		return !letter && !('0' <= r && r <= '9') && !strings.ContainsRune(others, r)
	})
}

// readUnsupported rejects fields that are not supported and must not be ignored, and names those that are dropped.
func (c *messagesCall) readUnsupported(f fieldList) {
	if f.given("thread") != nil {
		// With these details, SDKs fall back to sending the whole history.
		e := invalid("thread", "", "thread: message threads are not supported; send the whole conversation in messages")
		e.details = `{"error_code":"thread_unsupported_request","unsupported":["model"]}`
		c.fail(e)
	}
	if jsonscan.IsFilled(f.given("mcp_servers")) {
		c.fault("mcp_servers", "not supported by this deployment")
	}
	for _, path := range [...][2]string{{"container", "skills"}, {"thinking", "block_binding"}} {
		if jsonscan.IsFilled(jsonscan.Member(f.given(path[0]), path[1])) {
			c.drop(path[0]+"."+path[1], "")
		}
	}
	c.dropEdits("context_management.edits", jsonscan.Member(f.given("context_management"), "edits"))
}

// readSystem reads the system prompt.
func (c *messagesCall) readSystem(f fieldList) { c.addSystemContent(f, "system") }

// addSystemContent adds the content of a system prompt or message: a string or text
// blocks.
func (c *messagesCall) addSystemContent(f fieldList, name string) {
	switch raw := f.given(name); {
	case raw == nil:
		return
	case jsonscan.IsString(raw):
		c.conversation.addSystem(cutBillingLine(jsonscan.Unquote(raw), true))
		return
	case !jsonscan.IsArray(raw):
		c.wrongType(name, "a string or a list of text blocks", raw)
		return
	}
	var texts []string
	for list := c.objects(f, name); list.next(); {
		if list.fields.text("type") == "text" {
			if text := cutBillingLine(c.blockText(list.fields), false); text != "" {
				texts = append(texts, text)
			}
		} else if name == "system" {
			c.fault("type", "only text blocks are allowed here")
		} else {
			c.readToolChange(list.fields)
		}
	}
	c.conversation.addSystem(strings.Join(texts, "\n\n"))
}

// billing is the prefix of a line that a client prepends to its system prompt. The line
// changes with each request, and would invalidate the upstream's prompt cache.
const billing = "x-anthropic-billing-header:"

// maxBilling is the maximum length of such a line, without the text after it.
const maxBilling = 4 << 10

// billingNonce matches the nonce that usually ends such a line, and the fields that may
// follow it.
var billingNonce = regexp.MustCompile(`cch=[0-9a-f]{5};([ ]*[a-z_]+=[^;\n]*;)*[ ]?`)

// cutBillingLine removes the billing line from the start of a system text. In a prompt
// that is a single string, the text may follow on the same line.
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
func (c *messagesCall) readMessages(f fieldList) {
	if !jsonscan.IsFilled(c.typed(f, "messages", aList)) {
		c.fault("messages", "at least one message is required")
		return
	}
	for list := c.objects(f, "messages"); list.next(); {
		c.readMessage(list.fields)
	}
	c.tools.dropReplaced()
	c.conversation.ensureMessage()
}

// readMessage reads one message.
func (c *messagesCall) readMessage(f fieldList) {
	content := f.given("content")
	if content != nil && !jsonscan.IsString(content) && !jsonscan.IsArray(content) {
		c.wrongType("content", "a string or a list of blocks", content)
		return
	}
	switch role := f.text("role"); role {
	case "system":
		if f.given("output_config") != nil { // an effort from here on
			c.drop("output_config", "")
		}
		c.addSystemContent(f, "content")
	case "user":
		c.readUser(f)
	case "assistant":
		c.readAssistant(f)
	default:
		c.fault("role", "Input should be 'user', 'assistant' or 'system', not '%s'", show(role))
	}
}

// readSampling reads the limits and parameters of the answer.
func (c *messagesCall) readSampling(f fieldList) {
	limit := c.typed(f, "max_tokens", aWholeNumber)
	if limit != nil {
		if c.output, _ = jsonscan.Integer(limit); c.output < 1 {
			c.fault("max_tokens", "Input should be greater than or equal to 1")
		}
	} else if !c.countOnly {
		c.missing("max_tokens")
	}
	c.addNumbers(f, "temperature", "top_p", "top_k")
	c.readStop(f)
}

// readStop reads the stop sequences. Sequences of white space only are dropped, as the
// API does. They would make the model server stop at the first line.
func (c *messagesCall) readStop(f fieldList) {
	raw := c.typed(f, "stop_sequences", valueType{"a list of strings", anArray.is})
	if raw == nil {
		return
	}
	var stops []byte
	for m := jsonscan.Checked(raw); m.Next(); {
		if !jsonscan.IsString(m.Raw()) {
			c.wrongType("stop_sequences."+strconv.Itoa(m.Index), aString.name, m.Raw())
			return
		}
		if strings.TrimSpace(jsonscan.Unquote(m.Raw())) != "" {
			stops = append(append(stops, ','), m.Raw()...)
		}
	}
	if len(stops) > 0 {
		stops[0] = '['
		c.addParameter("stop", append(stops, ']'))
	}
}

// readFormat reads the schema of the answer.
func (c *messagesCall) readFormat(f fieldList) {
	name, format := "output_config.format", []byte(nil)
	if config, ok := f.inner("output_config"); ok {
		format = config.given("format")
	}
	if format == nil {
		name, format = "output_format", f.given("output_format")
	}
	if format == nil {
		return
	}
	schema := jsonscan.Member(format, "schema")
	if jsonscan.Text(format, "type") != "json_schema" || !jsonscan.IsObject(schema) {
		c.fault(name, "Input should be {\"type\":\"json_schema\",\"schema\":{…}}")
		return
	}
	c.addSchema("output", schema, []byte("true"), nil)
}

// The smallest thinking budgets, in tokens, of medium and high reasoning effort.
const (
	mediumBudget = 4096
	highBudget   = 16384
)

// budgetLevel returns the reasoning effort for a thinking budget.
func budgetLevel(tokens int64) string {
	switch {
	case tokens < mediumBudget:
		return "low"
	case tokens < highBudget:
		return "medium"
	}
	return "high"
}

// readThinking reads how the answer shows thinking and, if the deployment supports or maps it,
// the reasoning effort. The client's effort takes precedence over its budget, which
// agents usually do not adapt.
func (c *messagesCall) readThinking(f fieldList) {
	thinking := f.given("thinking")
	display, kind := jsonscan.Text(thinking, "display"), jsonscan.Text(thinking, "type")
	c.omitThinking = display == "omitted" || display == "updates" // the model writes updates as text, or none
	c.countThought = strings.Contains(strings.Join(c.env.Betas, ","), "thinking-token-count-2026-05-13")
	if kind == "between_tools" {
		c.drop("thinking.type", kind)
	}
	if !c.env.Options.Reasoning && c.env.Options.Efforts == "" {
		return
	}
	level := jsonscan.Text(f.given("output_config"), "effort")
	switch kind {
	case "disabled":
		level = "none"
	case "enabled":
		if budget, ok := jsonscan.Integer(jsonscan.Member(thinking, "budget_tokens")); ok && level == "" {
			level = budgetLevel(budget)
		}
	}
	if level != "" {
		c.askEffort(level, c.env.Options.Reasoning)
	}
}
