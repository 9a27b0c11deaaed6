package dialect

import (
	"encoding/base64"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// readUser reads the content of a user's message. Results of calls go to their
// calls, wherever in the message they stand; the rest stays one message.
func (c *messagesCall) readUser(content []byte, path *fieldPath) (err *Error) {
	if jsonscan.IsString(content) {
		c.conversation.addUser([]contentPart{{text: jsonscan.Unquote(content)}})
		return nil
	}
	var parts []contentPart
	for list := c.objects(content); list.next(path, &err); {
		f, here := readFields(list.Raw()), path.element(list.Index)
		if f.text("type") == "tool_result" {
			err = c.readResult(f, &here)
			continue
		}
		var part contentPart
		part, err = c.readBlock(f, &here)
		parts = append(parts, part)
	}
	c.conversation.addUser(parts)
	return err
}

// readBlock reads a block of what the user, or a tool, sends the model. Blocks
// that belong to hosted tools, and those that are not known, are nothing.
func (c *messagesCall) readBlock(f fieldList, path *fieldPath) (contentPart, *Error) {
	switch f.text("type") {
	case "text":
		if !jsonscan.IsString(f.get("text")) {
			return contentPart{}, c.missing(path.of("text"))
		}
		return contentPart{text: jsonscan.Unquote(f.get("text"))}, nil
	case "image":
		source := path.member("source")
		return c.readImage(given(f, "source"), &source)
	case "document":
		return c.readDocument(f, path)
	case "search_result":
		return contentPart{text: searchResult(f)}, nil
	case "tool_reference":
		return contentPart{text: "[tool: " + f.text("tool_name") + "]"}, nil
	}
	return contentPart{text: hostedText(f)}, nil
}

// readImage reads the source of an image block.
func (c *messagesCall) readImage(source []byte, path *fieldPath) (contentPart, *Error) {
	if source == nil || source[0] != '{' {
		return contentPart{}, c.missing(path.String())
	}
	f, url := readFields(source), ""
	switch kind := f.text("type"); kind {
	case "base64":
		data, media := f.text("data"), f.text("media_type")
		if data == "" || media == "" {
			return contentPart{}, at(path.String(), "a base64 source needs media_type and data")
		}
		url = "data:" + media + ";base64," + data
	case "url":
		if url = f.text("url"); url == "" {
			return contentPart{}, c.missing(path.of("url"))
		}
		if problem := remoteFault(url, c.options.RemoteMedia); problem != "" {
			return contentPart{}, at(path.of("url"), "%s", problem)
		}
	default:
		return contentPart{}, at(path.of("type"), "%s is not supported", show(kind))
	}
	return imagePart(url, ""), nil
}

// imagePart is an image as a part of a chat message; detail is "" if the
// client gave none.
func imagePart(url, detail string) contentPart {
	b := jsonscan.AppendQuoted([]byte(`{"type":"image_url","image_url":{"url":`), url)
	if detail != "" {
		b = jsonscan.AppendQuoted(append(b, `,"detail":`...), detail)
	}
	return contentPart{raw: append(b, "}}"...)}
}

// readDocument reads a document block: text, or, if the model server takes
// files, any other kind too.
func (c *messagesCall) readDocument(f fieldList, path *fieldPath) (contentPart, *Error) {
	source := given(f, "source")
	if source == nil || source[0] != '{' {
		return contentPart{}, c.missing(path.of("source"))
	}
	s := readFields(source)
	text, media := "", strings.ToLower(s.text("media_type"))
	title := f.text("title")
	switch kind := s.text("type"); {
	case kind == "text" && jsonscan.IsString(s.get("data")):
		text = jsonscan.Unquote(s.get("data"))
	case kind == "content" && given(s, "content") != nil:
		text = plainText(s.get("content"))
	case kind == "base64" && strings.HasPrefix(media, "text/") && jsonscan.IsString(s.get("data")):
		data, err := base64.StdEncoding.DecodeString(jsonscan.Unquote(s.get("data")))
		if err != nil {
			return contentPart{}, at(path.of("source.data"), "is not valid base64")
		}
		text = string(data)
	case c.options.FileParts && kind == "base64" && media != "" && s.text("data") != "":
		return filePart(fileName(title, media), "data:"+media+";base64,"+s.text("data")), nil
	default:
		if media == "" {
			media = kind
		}
		return contentPart{}, at(path.of("source"), "document blocks of type %s are not supported by this deployment", show(media))
	}
	return contentPart{text: documentText(title, text)}, nil
}

// documentText is a document as the model reads it.
func documentText(title, text string) string {
	if title == "" {
		return "<document>\n" + text + "\n</document>"
	}
	return `<document title="` + strings.ReplaceAll(title, `"`, "'") + "\">\n" + text + "\n</document>"
}

// searchResult is the text of a search_result block.
func searchResult(f fieldList) string {
	title, source := "", ""
	if jsonscan.IsString(f.get("title")) {
		title = jsonscan.Unquote(f.get("title"))
	}
	if jsonscan.IsString(f.get("source")) {
		source = jsonscan.Unquote(f.get("source"))
	}
	return title + " — " + source + "\n" + plainText(f.get("content"))
}

// plainText is the text of a string, or of the text blocks of a list.
func plainText(raw []byte) string {
	if jsonscan.IsString(raw) {
		return jsonscan.Unquote(raw)
	}
	if len(raw) == 0 || raw[0] != '[' {
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
func (c *messagesCall) readResult(f fieldList, path *fieldPath) (err *Error) {
	id := f.text("tool_use_id")
	if id == "" {
		return c.missing(path.of("tool_use_id"))
	}
	var parts []contentPart
	switch content := given(f, "content"); {
	case content == nil:
	case jsonscan.IsString(content):
		parts = []contentPart{{text: jsonscan.Unquote(content)}}
	case content[0] == '[':
		inside := path.member("content")
		for list := c.objects(content); list.next(&inside, &err); {
			here := inside.element(list.Index)
			var part contentPart
			part, err = c.readBlock(readFields(list.Raw()), &here)
			parts = append(parts, part)
		}
	default:
		return c.wrongType(path.of("content"), "a string or a list of blocks", content)
	}
	text, images := resultText(parts)
	if string(f.get("is_error")) == "true" {
		text = failedResult(text)
	}
	c.conversation.addResult(id, text, images)
	return err
}

// failedResult is a result that is an error: the chat dialect has no flag for
// that, so the text says so.
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

// readAssistant reads the content of an assistant's message.
func (c *messagesCall) readAssistant(content []byte, path *fieldPath) (err *Error) {
	if jsonscan.IsString(content) {
		c.conversation.addText(jsonscan.Unquote(content))
		return nil
	}
	for list := c.objects(content); list.next(path, &err); {
		here := path.element(list.Index)
		err = c.readAssistantBlock(readFields(list.Raw()), &here)
	}
	return err
}

// readAssistantBlock reads one block of what the assistant said.
func (c *messagesCall) readAssistantBlock(f fieldList, path *fieldPath) *Error {
	switch f.text("type") {
	case "text":
		c.conversation.addText(f.text("text"))
	case "thinking":
		thinking := f.text("thinking")
		if thinking == "" {
			thinking = c.env.reasoningStore().open(carryingMark, f.text("signature"))
		}
		c.conversation.addReasoning(thinking)
	case "tool_use":
		id, name := f.text("id"), f.text("name")
		if id == "" {
			return c.missing(path.of("id"))
		}
		if name == "" {
			return c.missing(path.of("name"))
		}
		c.conversation.addCall(id, name, callInput(f.get("input")))
	case "image", "document":
		return at(path.of("type"), "an assistant's message cannot hold this block")
	default:
		c.conversation.addText(hostedText(f))
	}
	return nil
}

// callInput is the input of a call as JSON text.
func callInput(raw []byte) string {
	if len(raw) == 0 || raw[0] != '{' {
		return "{}"
	}
	return string(compactJSON(raw))
}

// hostedText is what the history of a hosted tool looks like to a model that does
// not have it: the call in one line, and what was found in lines of title and
// address. Other blocks are nothing.
func hostedText(f fieldList) string {
	kind := f.text("type")
	if kind == "server_tool_use" {
		return "[" + f.text("name") + " " + callInput(f.get("input")) + "]"
	}
	if !strings.HasSuffix(kind, "_tool_result") {
		return ""
	}
	content := given(f, "content")
	if content == nil || content[0] != '[' {
		return ""
	}
	var lines []string
	for m := jsonscan.Checked(content); m.Next(); {
		title, url := jsonscan.Text(m.Raw(), "title"), jsonscan.Text(m.Raw(), "url")
		if url != "" {
			lines = append(lines, strings.TrimPrefix(title+": "+url, ": "))
		}
	}
	return strings.Join(lines, "\n")
}
