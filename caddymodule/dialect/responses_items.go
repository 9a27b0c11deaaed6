package dialect

import (
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// readItems reads the conversation.
func (c *responsesCall) readItems(fieldList) *Error {
	for i, item := range c.items {
		if i%checkEvery == 0 && c.elements.ended() != nil {
			return abandoned()
		}
		path := item.path()
		if err := c.readItem(item.raw, &path); err != nil {
			return err
		}
	}
	c.conversation.ensureMessage()
	return nil
}

// readItem reads one item. Those that belong to tools of the API's servers, and
// those that are not known, are nothing to the model: a client cannot be kept
// from sending them.
func (c *responsesCall) readItem(item []byte, path *fieldPath) *Error {
	f := readFields(item)
	switch kind := itemType(f); kind {
	case "message":
		return c.readMessage(f, path)
	case "function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call":
		return c.readCall(kind, f, path)
	case "function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output", "apply_patch_call_output":
		return c.readOutput(kind, f, path)
	case "reasoning":
		if text := c.reasoningText(f); text != "" {
			c.pendingReasoning = append(c.pendingReasoning, text)
		}
	case "compaction":
		if text := c.env.reasoningStore().open(compactionMark, f.text("encrypted_content")); text != "" {
			c.pendingReasoning = nil
			c.conversation.addUser([]contentPart{{text: text}})
		}
	case "additional_tools", "tool_search_output": // their tools were read before
	case "compaction_trigger": // acted on when it comes last
	default:
		if c.env.Dropped != nil {
			c.env.Dropped(plainName(kind))
		}
	}
	return nil
}

// plainName is a client's name for something if it looks like one; else it can
// be anything, and must not get into a log.
func plainName(name string) string {
	ok := name != "" && len(name) <= 64
	for i := 0; ok && i < len(name); i++ {
		c := name[i] | 0x20
		ok = 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || name[i] == '_' || name[i] == '.' || name[i] == ':'
	}
	if !ok {
		return "(no plain name)"
	}
	return name
}

// reasoningText is the text of a reasoning item.
func (c *responsesCall) reasoningText(f fieldList) string {
	if text := c.env.reasoningStore().open(reasoningMark, f.text("encrypted_content")); text != "" {
		return text
	}
	for _, name := range [...]string{"content", "summary"} {
		if text := plainText(f.get(name)); text != "" {
			return text
		}
	}
	return ""
}

// addPendingReasoning adds the reasoning that came before what the assistant adds now.
func (c *responsesCall) addPendingReasoning() {
	for _, text := range c.pendingReasoning {
		c.conversation.addReasoning(text)
	}
	c.pendingReasoning = nil
}

// readMessage reads a message.
func (c *responsesCall) readMessage(f fieldList, path *fieldPath) *Error {
	role := f.text("role")
	inside := path.member("content")
	var parts []contentPart
	if content := given(f, "content"); content != nil {
		var err *Error
		if parts, err = c.readParts(content, &inside); err != nil {
			return err
		}
	}
	switch role {
	case "user":
		c.pendingReasoning = nil
		c.conversation.addUser(parts)
		return nil
	case "assistant", "system", "developer":
		texts, err := onlyTexts(parts, role, &inside)
		if err != nil {
			return err
		}
		if role != "assistant" {
			c.conversation.addSystem(strings.Join(texts, "\n"))
			return nil
		}
		if len(texts) > 0 {
			c.addPendingReasoning()
			c.conversation.addText(strings.Join(texts, "\n"))
		}
		return nil
	}
	return invalid(path.of("role"), "", "Invalid value for %s: '%s'. It must be user, assistant, system or developer.", path.of("role"), show(role))
}

// onlyTexts is the texts of parts that must hold nothing else.
func onlyTexts(parts []contentPart, role string, path *fieldPath) ([]string, *Error) {
	var texts []string
	for i, p := range parts {
		if p.raw != nil {
			return nil, invalid(element(path.String(), i)+".type", "", "A message of the role %s can hold only text.", role)
		}
		if p.text != "" {
			texts = append(texts, p.text)
		}
	}
	return texts, nil
}

// readCall reads a call of a tool.
func (c *responsesCall) readCall(kind string, f fieldList, path *fieldPath) *Error {
	id, item := f.text("call_id"), f.text("id")
	if id == "" {
		id = item
	}
	if id == "" {
		return missing(path.of("call_id"))
	}
	key := toolKey{f.text("namespace"), f.text("name")}
	to := ToolName{Name: key.name, Namespace: key.namespace}
	arguments := ""
	switch kind {
	case "function_call":
		arguments = callArguments(f.get("arguments"))
	case "custom_tool_call":
		to.Kind = ToolCustom
		arguments = string(append(appendText([]byte(`{"input":`), inputOf(f)), '}'))
	default:
		name := strings.TrimSuffix(kind, "_call")
		key = toolKey{name: name}
		to = ToolName{Kind: builtinTools[name].kind, Name: name}
		action := given(f, "action")
		if kind == "apply_patch_call" {
			action = given(f, "operation")
		}
		arguments = callInput(action)
	}
	if key.name == "" {
		return missing(path.of("name"))
	}
	if item != "" {
		if c.calls == nil {
			c.calls = make(map[string]string)
		}
		c.calls[item] = id
	}
	upstreamName := c.upstreamNames.called(key)
	c.tools.alias(upstreamName, to)
	c.addPendingReasoning()
	c.conversation.addCall(responsesID(id), upstreamName, arguments)
	return nil
}

// inputOf is the input of a custom_tool_call as JSON.
func inputOf(f fieldList) []byte {
	if raw := given(f, "input"); raw != nil {
		return raw
	}
	return []byte(`""`)
}

// callArguments is the arguments of a function_call as JSON text. Templates of
// model servers need an object.
func callArguments(raw []byte) string {
	if !jsonscan.IsString(raw) {
		return callInput(raw)
	}
	text := jsonscan.Unquote(raw)
	object, _ := normalArguments(text)
	return string(object)
}

// readOutput reads the result of a call. It names the call by its call_id, or,
// of some types, by the id of its item.
func (c *responsesCall) readOutput(kind string, f fieldList, path *fieldPath) *Error {
	id := f.text("call_id")
	if id == "" {
		id = f.text("id")
		if call, ok := c.calls[id]; ok {
			id = call
		}
	}
	if id == "" {
		return missing(path.of("call_id"))
	}
	text, images := "", []contentPart(nil)
	output := given(f, "output")
	switch {
	case output == nil:
	case kind == "shell_call_output" && !jsonscan.IsString(output):
		text = string(compactJSON(output))
	default:
		inside := path.member("output")
		var err *Error
		if text, images, err = c.readResultParts(output, &inside); err != nil {
			return err
		}
	}
	if kind == "apply_patch_call_output" {
		status := f.text("status")
		switch {
		case status == "failed":
			text = failedResult(text)
		case text == "":
			text = status
		}
	}
	c.conversation.addResult(responsesID(id), text, images)
	return nil
}

// readResultParts is the text and the images of a result. A client may send a
// list of parts as a string.
func (c *responsesCall) readResultParts(raw []byte, path *fieldPath) (text string, images []contentPart, err *Error) {
	if jsonscan.IsString(raw) {
		text = jsonscan.Unquote(raw)
		list := []byte(strings.TrimSpace(text))
		if len(list) == 0 || list[0] != '[' || !strings.Contains(text, `"input_image"`) || !jsonscan.Valid(list) {
			return text, nil, nil
		}
		parts, err := c.readParts(list, path)
		if err != nil { // only looks like it
			return text, nil, nil
		}
		text, images = resultText(parts)
		return text, images, nil
	}
	if raw[0] != '[' {
		return string(compactJSON(raw)), nil, nil
	}
	parts, err := c.readParts(raw, path)
	if err != nil {
		return "", nil, err
	}
	text, images = resultText(parts)
	return text, images, nil
}

// resultText is the text of a result's parts, and its images: only text fits
// into a tool's message of the chat dialect, so images follow in the user's.
func resultText(parts []contentPart) (string, []contentPart) {
	var texts []string
	var images []contentPart
	for _, p := range parts {
		switch {
		case p.raw != nil:
			texts, images = append(texts, p.marker()), append(images, p)
		case p.text != "":
			texts = append(texts, p.text)
		}
	}
	return strings.Join(texts, "\n"), images
}
