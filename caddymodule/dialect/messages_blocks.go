package dialect

import (
	"encoding/base64"
	"strconv"
	"strings"
)

// readUser reads the content of a user's message. Results of calls go to their
// calls, wherever in the message they stand; the rest stays one message.
func (c *messagesCall) readUser(content []byte, path string) *Error {
	if isString(content) {
		c.talk.addUser([]contentPart{{text: unquote(content)}})
		return nil
	}
	var parts []contentPart
	for m := checkedMembers(content); m.next(); {
		block, here := m.raw(), path+"."+strconv.Itoa(m.index)
		if block[0] != '{' {
			return at(here, "Input should be an object, not %s", typeName(block))
		}
		f := fieldsByName(block)
		if stringOf(f["type"]) == "tool_result" {
			if err := c.readResult(f, here); err != nil {
				return err
			}
			continue
		}
		more, err := c.readBlock(f, here)
		if err != nil {
			return err
		}
		parts = append(parts, more...)
	}
	c.talk.addUser(parts)
	return nil
}

// readBlock reads a block of what the user, or a tool, tells the model. Blocks
// that belong to hosted tools, and those that are not known, are nothing.
func (c *messagesCall) readBlock(f map[string][]byte, path string) ([]contentPart, *Error) {
	switch stringOf(f["type"]) {
	case "text":
		if !isString(f["text"]) {
			return nil, at(path+".text", "Field required")
		}
		return []contentPart{{text: unquote(f["text"])}}, nil
	case "image":
		part, err := c.readImage(given(f, "source"), path+".source")
		return []contentPart{part}, err
	case "document":
		part, err := c.readDocument(f, path)
		return []contentPart{part}, err
	case "search_result":
		return []contentPart{{text: searchResult(f)}}, nil
	case "tool_reference":
		return []contentPart{{text: "[tool: " + stringOf(f["tool_name"]) + "]"}}, nil
	}
	return []contentPart{{text: hostedText(f)}}, nil
}

// readImage reads the source of an image block.
func (c *messagesCall) readImage(source []byte, path string) (contentPart, *Error) {
	if source == nil || source[0] != '{' {
		return contentPart{}, at(path, "Field required")
	}
	f, url := fieldsByName(source), ""
	switch kind := stringOf(f["type"]); kind {
	case "base64":
		data, media := stringOf(f["data"]), stringOf(f["media_type"])
		if data == "" || media == "" {
			return contentPart{}, at(path, "a base64 source needs media_type and data")
		}
		url = "data:" + media + ";base64," + data
	case "url":
		if url = stringOf(f["url"]); url == "" {
			return contentPart{}, at(path+".url", "Field required")
		}
		if problem := remoteFault(url, c.treat.RemoteMedia); problem != "" {
			return contentPart{}, at(path+".url", "%s", problem)
		}
	default:
		return contentPart{}, at(path+".type", "%s is not supported", show(kind))
	}
	return imagePart(url, ""), nil
}

// imagePart is an image as a part of a chat message; detail is "" if the
// client gave none.
func imagePart(url, detail string) contentPart {
	b := appendQuoted([]byte(`{"type":"image_url","image_url":{"url":`), url)
	if detail != "" {
		b = appendQuoted(append(b, `,"detail":`...), detail)
	}
	return contentPart{raw: append(b, "}}"...)}
}

// readDocument reads a document block: text, or, if the model server takes
// files, any other kind too.
func (c *messagesCall) readDocument(f map[string][]byte, path string) (contentPart, *Error) {
	source := given(f, "source")
	if source == nil || source[0] != '{' {
		return contentPart{}, at(path+".source", "Field required")
	}
	s := fieldsByName(source)
	text, media := "", strings.ToLower(stringOf(s["media_type"]))
	title := stringOf(f["title"])
	switch kind := stringOf(s["type"]); {
	case kind == "text" && isString(s["data"]):
		text = unquote(s["data"])
	case kind == "content" && given(s, "content") != nil:
		text = plainText(s["content"])
	case kind == "base64" && strings.HasPrefix(media, "text/") && isString(s["data"]):
		data, err := base64.StdEncoding.DecodeString(unquote(s["data"]))
		if err != nil {
			return contentPart{}, at(path+".source.data", "is not valid base64")
		}
		text = string(data)
	case c.treat.FileParts && kind == "base64" && media != "" && stringOf(s["data"]) != "":
		return filePart(fileName(title, media), "data:"+media+";base64,"+stringOf(s["data"])), nil
	default:
		if media == "" {
			media = kind
		}
		return contentPart{}, at(path+".source", "document blocks of type %s are not supported by this deployment", show(media))
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
func searchResult(f map[string][]byte) string {
	title, source := "", ""
	if isString(f["title"]) {
		title = unquote(f["title"])
	}
	if isString(f["source"]) {
		source = unquote(f["source"])
	}
	return title + " — " + source + "\n" + plainText(f["content"])
}

// plainText is the text of a string, or of the text blocks of a list.
func plainText(raw []byte) string {
	if isString(raw) {
		return unquote(raw)
	}
	if len(raw) == 0 || raw[0] != '[' {
		return ""
	}
	var texts []string
	for m := checkedMembers(raw); m.next(); {
		if text := textField(m.raw(), "text"); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n")
}

// readResult reads the result of a call. Only text fits into a tool's message
// of the chat dialect, so images follow in the user's.
func (c *messagesCall) readResult(f map[string][]byte, path string) *Error {
	id := stringOf(f["tool_use_id"])
	if id == "" {
		return at(path+".tool_use_id", "Field required")
	}
	var texts []string
	var images []contentPart
	switch content := given(f, "content"); {
	case content == nil:
	case isString(content):
		texts = []string{unquote(content)}
	case content[0] == '[':
		for m := checkedMembers(content); m.next(); {
			here := path + ".content." + strconv.Itoa(m.index)
			if m.raw()[0] != '{' {
				return at(here, "Input should be an object, not %s", typeName(m.raw()))
			}
			parts, err := c.readBlock(fieldsByName(m.raw()), here)
			if err != nil {
				return err
			}
			for _, p := range parts {
				switch {
				case p.raw != nil:
					texts, images = append(texts, p.marker()), append(images, p)
				case p.text != "":
					texts = append(texts, p.text)
				}
			}
		}
	default:
		return at(path+".content", "Input should be a string or a list of blocks, not %s", typeName(content))
	}
	text := strings.Join(texts, "\n")
	if string(f["is_error"]) == "true" {
		text = failedResult(text)
	}
	c.talk.addResult(id, text, images)
	return nil
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
func (c *messagesCall) readAssistant(content []byte, path string) *Error {
	if isString(content) {
		c.talk.addText(unquote(content))
		return nil
	}
	for m := checkedMembers(content); m.next(); {
		block, here := m.raw(), path+"."+strconv.Itoa(m.index)
		if block[0] != '{' {
			return at(here, "Input should be an object, not %s", typeName(block))
		}
		if err := c.readSaid(fieldsByName(block), here); err != nil {
			return err
		}
	}
	return nil
}

// readSaid reads one block of what the assistant said.
func (c *messagesCall) readSaid(f map[string][]byte, path string) *Error {
	switch stringOf(f["type"]) {
	case "text":
		c.talk.addText(stringOf(f["text"]))
	case "thinking":
		thinking := stringOf(f["thinking"])
		if thinking == "" {
			thinking = c.vault.open(carryingMark, stringOf(f["signature"]))
		}
		c.talk.addReasoning(thinking)
	case "tool_use":
		id, name := stringOf(f["id"]), stringOf(f["name"])
		if id == "" {
			return at(path+".id", "Field required")
		}
		if name == "" {
			return at(path+".name", "Field required")
		}
		c.talk.addCall(id, name, callInput(f["input"]))
	case "image", "document":
		return at(path+".type", "an assistant's message cannot hold this block")
	default:
		c.talk.addText(hostedText(f))
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

// hostedText is what the history of a hosted tool says to a model that does
// not have it: the call in one line, and what was found in lines of title and
// address. Other blocks are nothing.
func hostedText(f map[string][]byte) string {
	kind := stringOf(f["type"])
	if kind == "server_tool_use" {
		return "[" + stringOf(f["name"]) + " " + callInput(f["input"]) + "]"
	}
	if !strings.HasSuffix(kind, "_tool_result") {
		return ""
	}
	content := given(f, "content")
	if content == nil || content[0] != '[' {
		return ""
	}
	var lines []string
	for m := checkedMembers(content); m.next(); {
		title, url := textField(m.raw(), "title"), textField(m.raw(), "url")
		if url != "" {
			lines = append(lines, strings.TrimPrefix(title+": "+url, ": "))
		}
	}
	return strings.Join(lines, "\n")
}
