package dialect

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// readUser reads the content of a user message. Results are added to their calls. The
// other blocks become one message.
func (c *messagesCall) readUser(f fieldList) {
	if content := f.given("content"); jsonscan.IsString(content) {
		c.conversation.addUser([]contentPart{{text: jsonscan.Unquote(content), typed: true}})
		return
	}
	var parts []contentPart
	for list := c.objects(f, "content"); list.next(); {
		switch list.fields.text("type") {
		case "tool_result":
			c.readResult(list.fields)
		case "compaction", "mid_conv_system", "tool_addition", "tool_removal":
			c.conversation.addUser(parts)
			parts = nil
			c.readChange(list.fields)
		default:
			parts = append(parts, c.readBlock(list.fields))
		}
	}
	c.conversation.addUser(parts)
}

// readBlock reads a block of a user message or a tool result. Unknown blocks return an
// empty part.
func (c *messagesCall) readBlock(f fieldList) contentPart {
	if string(jsonscan.Member(f.given("citations"), "enabled")) == "true" {
		c.drop("citations", "enabled")
	}
	switch f.text("type") {
	case "text":
		return contentPart{text: c.blockText(f), typed: true}
	case "image":
		return c.readImage(f)
	case "document":
		return c.readDocument(f)
	case "search_result":
		return contentPart{text: f.text("title") + " — " + f.text("source") + "\n" + plainText(f.get("content"))}
	case "browser_state":
		return contentPart{text: string(jsonscan.Appendf(nil, `{"tabs":%n,"state_changes":%n}`,
			compactJSON(f.get("tabs")), compactJSON(f.get("state_changes"))))}
	case "tool_reference":
		return contentPart{text: "[tool: " + f.text("tool_name") + "]"}
	}
	return contentPart{text: c.hostedText(f)}
}

// blockText returns the text of a text block.
func (c *messagesCall) blockText(f fieldList) string {
	if !jsonscan.IsString(f.get("text")) {
		c.missing("text")
	}
	return f.text("text")
}

// readImage reads the source of an image block.
func (c *messagesCall) readImage(f fieldList) contentPart {
	source, ok := f.inner("source")
	if !ok {
		c.missing("source")
		return contentPart{}
	}
	address := ""
	switch kind := source.text("type"); kind {
	case "base64":
		data, media := source.text("data"), source.text("media_type")
		if data == "" || media == "" {
			c.fault("source", "a base64 source needs media_type and data")
		}
		address = "data:" + media + ";base64," + data
	case "url":
		if address = source.text("url"); address == "" {
			c.missing("source.url")
		}
		c.checkAddress("source.url", address)
	default:
		c.fault("source.type", "%s is not supported", show(kind))
	}
	return imagePart(address, "")
}

// imagePart returns an image as a part of a chat message. detail may be "".
func imagePart(url, detail string) contentPart {
	b := jsonscan.Appendf(nil, `{"type":"image_url","image_url":{"url":%q`, url)
	if detail != "" {
		b = jsonscan.Appendf(b, `,"detail":%q`, detail)
	}
	return contentPart{raw: append(b, "}}"...)}
}

// filePart returns a file as a part of a chat message. If name is "", it is derived from
// the media type. data is a data URL.
func filePart(name, media, data string) contentPart {
	if name == "" {
		name = "document"
		if media == "application/pdf" {
			name += ".pdf"
		}
	}
	raw := jsonscan.Appendf(nil, `{"type":"file","file":{"filename":%q,"file_data":%q}}`, name, data)
	return contentPart{raw: raw, mark: "[file]"}
}

// readDocument reads a document block. Documents other than text require that the model
// server supports files.
func (c *messagesCall) readDocument(f fieldList) contentPart {
	source, ok := f.inner("source")
	if !ok {
		c.missing("source")
		return contentPart{}
	}
	text, title := "", strings.Trim(f.text("title")+" — "+f.text("context"), " —")
	data, media := source.get("data"), strings.ToLower(source.text("media_type"))
	switch kind := source.text("type"); {
	case kind == "text" && jsonscan.IsString(data):
		text = jsonscan.Unquote(data)
	case kind == "content" && source.given("content") != nil:
		text = plainText(source.get("content"))
	case kind == "base64" && strings.HasPrefix(media, "text/") && jsonscan.IsString(data):
		decoded, err := base64.StdEncoding.DecodeString(jsonscan.Unquote(data))
		if err != nil {
			c.fault("source.data", "is not valid base64")
		}
		text = string(decoded)
	case c.env.Options.FileParts && kind == "base64" && media != "" && source.text("data") != "":
		return filePart(title, media, "data:"+media+";base64,"+source.text("data"))
	default:
		if media == "" {
			media = kind
		}
		c.fault("source", "document blocks of type %s are not supported by this deployment", show(media))
	}
	return contentPart{text: documentText(title, text)}
}

// documentText returns the text of a document for the model.
func documentText(title, text string) string {
	if title == "" {
		return "<document>\n" + text + "\n</document>"
	}
	return `<document title="` + strings.ReplaceAll(title, `"`, "'") + "\">\n" + text + "\n</document>"
}

// plainText returns a string, or the joined texts of a list of blocks.
func plainText(raw []byte) string {
	if jsonscan.IsString(raw) {
		return jsonscan.Unquote(raw)
	}
	if !jsonscan.IsArray(raw) {
		return ""
	}
	var texts []string
	for m := jsonscan.Checked(raw); m.Next(); {
		if text := jsonscan.Text(m.Raw(), "text"); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n")
}

// readResult reads the result of a call.
func (c *messagesCall) readResult(f fieldList) {
	id := f.text("tool_use_id")
	if id == "" {
		c.missing("tool_use_id")
	}
	text, images := f.text("content"), []contentPart(nil)
	if !jsonscan.IsString(f.get("content")) {
		text, images = resultText(c.readContent(f, "content", "a string or a list of blocks", c.readBlock))
	}
	if c.boolean(f, "is_error") {
		text = failedResult(text)
	}
	c.conversation.addResult(id, text, images)
}

// failedResult marks a result as an error in its text, because the chat dialect has no
// flag for it.
func failedResult(text string) string {
	const mark = "error"
	switch {
	case text == "":
		return "Error: tool failed"
	case len(text) >= len(mark) && strings.EqualFold(text[:len(mark)], mark):
		return text
	}
	return "Error: " + text
}

// readAssistant reads the content of an assistant message.
func (c *messagesCall) readAssistant(f fieldList) {
	if content := f.given("content"); jsonscan.IsString(content) {
		c.conversation.addText(jsonscan.Unquote(content))
		return
	}
	for list := c.objects(f, "content"); list.next(); {
		c.readAssistantBlock(list.fields)
	}
}

// readAssistantBlock reads a block of an assistant message.
func (c *messagesCall) readAssistantBlock(f fieldList) {
	switch f.text("type") {
	case "text":
		c.conversation.addText(c.blockText(f))
	case "thinking":
		thinking := f.text("thinking")
		if thinking == "" {
			thinking = c.env.unseal(carryingMark, f.text("signature"))
		}
		c.conversation.addReasoning(thinking)
	case "tool_use":
		for _, name := range [...]string{"id", "name"} {
			if f.text(name) == "" {
				c.missing(name)
			}
		}
		if input := f.get("input"); jsonscan.IsFilled(input) && !anObject.is(input) {
			c.wrongType("input", anObject.name, input)
		}
		c.conversation.addCall(f.text("id"), memberName(f.text("toolset_name"), f.text("name")), callInput(f.get("input")))
	case "image", "document":
		c.fault("type", "an assistant message cannot contain this block")
	case "compaction", "mid_conv_system", "tool_addition", "tool_removal":
		c.readChange(f)
	default:
		c.conversation.addText(c.hostedText(f))
	}
}

// callInput returns the input of a call as JSON.
func callInput(raw []byte) string {
	if !jsonscan.IsObject(raw) {
		return "{}"
	}
	return string(compactJSON(raw))
}

// readChange reads a block that changes the conversation or the tools. A compaction without content failed.
func (c *messagesCall) readChange(f fieldList) {
	switch f.text("type") {
	case "compaction":
		if summary := f.text("content"); summary != "" {
			c.conversation.messages, c.conversation.calls = nil, nil
			c.conversation.addUser([]contentPart{{text: summary}})
		}
		c.typed(f, "tool_changes", aList)
		for list := c.objects(f, "tool_changes"); list.next(); {
			c.readToolChange(list.fields)
		}
	case "mid_conv_system":
		c.addSystemContent(f, "content")
	default:
		c.readToolChange(f)
	}
}

// hostedText returns the text of a hosted tool's history for the model: the call in one line, or its result.
// Newer clients may send other types, but a missing type is an error.
func (c *messagesCall) hostedText(f fieldList) string {
	if c.typed(f, "type", aString) == nil && len(f) > 0 {
		c.missing("type")
	}
	switch kind := f.text("type"); kind {
	case "server_tool_use", "mcp_tool_use":
		return "[" + f.text("name") + " " + callInput(f.get("input")) + "]"
	case "", "fallback", "redacted_thinking": // they mean nothing to another model
		return ""
	default:
		return c.hosted(kind, f.given("content"))
	}
}

// hostedMembers are the members of a history from another service that have text for the model, sorted.
var hostedMembers = strings.Fields(`action actions approve arguments author code content data error error_code
	error_message filename is_file_update lines logs message name output outputs queries reason result results
	return_code source stderr stdout text title tool_name tool_references url`)

// hosted returns the text of what another service did. If it is more than text, the type is noted as dropped.
func (t *translation) hosted(kind string, raw []byte) string {
	text := appendHosted(nil, "content", raw, 8) // a fetched page needs 5
	has := func(part string) bool { return bytes.Contains(raw, []byte(part)) }
	if text == nil || has(`"encrypted_`) || has(`"base64"`) || has(`"data:image/`) {
		t.drop("", kind)
	}
	if text == nil {
		return ""
	}
	return "[" + plainName(kind) + "]" + string(text)
}

// appendHosted appends a line for each text of a member. Members below these levels, and arguments and actions, which
// mean something only as a whole, stay JSON.
func appendHosted(b []byte, name string, raw []byte, levels int) []byte {
	text := ""
	switch {
	case len(raw) == 0, jsonscan.IsNull(raw), name == "source" && jsonscan.Text(raw, "type") == "base64":
	case jsonscan.IsString(raw):
		text = jsonscan.Unquote(raw)
	case raw[0] != '{' && raw[0] != '[', levels == 0, name == "arguments", strings.HasPrefix(name, "action"):
		text = string(compactJSON(raw))
	default:
		for m := jsonscan.Checked(raw); m.Next(); {
			inner := cmp.Or(string(m.Name()), name)
			if _, ok := slices.BinarySearch(hostedMembers, inner); ok {
				b = appendHosted(b, inner, m.Raw(), levels-1)
			}
		}
	}
	if text == "" || strings.HasPrefix(text, "data:image/") {
		return b
	}
	if name != "text" && name != "content" {
		text = name + ": " + text
	}
	return append(append(b, '\n'), text...)
}
