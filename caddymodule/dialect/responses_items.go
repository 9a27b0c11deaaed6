package dialect

import (
	"cmp"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// readItems reads the conversation.
func (c *responsesCall) readItems(fieldList) {
	var f fieldList
	for i, item := range c.items {
		if i%checkEvery == 0 && c.env.ended() {
			c.fail(abandoned())
		}
		if c.err != nil {
			return
		}
		f = appendFields(f, item.raw)
		c.path = append(c.path[:0], item.step())
		c.readItem(f, item.raw)
	}
	c.path = c.path[:0]
	c.conversation.ensureMessage()
}

// readItem reads an item. Of items that other services added, such as calls of their tools, only the text is
// sent to the model.
func (c *responsesCall) readItem(f fieldList, raw []byte) {
	switch kind := itemType(f); kind {
	case "message":
		c.readMessage(f)
	case "function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call":
		c.readCall(kind, f)
	case "function_call_output", "custom_tool_call_output", "local_shell_call_output", "shell_call_output",
		"apply_patch_call_output":
		c.readOutput(kind, f)
	case "reasoning":
		if text := c.reasoningText(f); text != "" {
			c.pendingReasoning = append(c.pendingReasoning, text)
		}
	case "compaction":
		if text := c.env.unseal(compactionMark, f.text("encrypted_content")); text != "" {
			c.pendingReasoning = nil
			c.conversation.addUser([]contentPart{{text: text}})
		} else {
			c.drop("", kind)
		}
	case "additional_tools", "tool_search_output": // their tools were already read
	case "compaction_trigger": // see readTrigger
	case "image_generation_call": // a picture
		c.drop("", kind)
	default:
		switch text := c.hosted(kind, raw); {
		case text == "":
		case strings.HasSuffix(kind, "_call"), kind == "program":
			c.addPendingReasoning()
			c.conversation.addText(text)
		default:
			c.pendingReasoning = nil
			c.conversation.addUser([]contentPart{{text: text}})
		}
	}
}

// plainName returns name if it is safe to log. Other names may contain anything.
func plainName(name string) string {
	if !isPlain(name, "_.:") {
		return "invalid name"
	}
	return name
}

// reasoningText returns the text of a reasoning item.
func (c *responsesCall) reasoningText(f fieldList) string {
	if text := c.env.unseal(reasoningMark, f.text("encrypted_content")); text != "" {
		return text
	}
	for _, name := range [...]string{"content", "summary"} {
		if text := plainText(f.get(name)); text != "" {
			return text
		}
	}
	return ""
}

// addPendingReasoning adds the reasoning that precedes the assistant's next content.
func (c *responsesCall) addPendingReasoning() {
	for _, text := range c.pendingReasoning {
		c.conversation.addReasoning(text)
	}
	c.pendingReasoning = nil
}

// readMessage reads a message.
func (c *responsesCall) readMessage(f fieldList) {
	role := f.text("role")
	parts := c.readParts(f, "content")
	if phase := f.text("phase"); phase != "" {
		c.drop("phase", phase)
	}
	switch role {
	case "user":
		c.pendingReasoning = nil
		c.conversation.addUser(parts)
	case "system", "developer":
		c.conversation.addSystem(c.onlyText(role, parts))
	case "assistant":
		if text := c.onlyText(role, parts); text != "" {
			c.addPendingReasoning()
			c.conversation.addText(text)
		}
	default:
		c.badValue("role", "'%s'. It must be user, assistant, system or developer.", show(role))
	}
}

// onlyText returns the text of a message's parts. It fails if there are other parts.
func (c *responsesCall) onlyText(role string, parts []contentPart) string {
	var texts []string
	for i, p := range parts {
		if p.raw != nil {
			c.fault(element("content", i)+".type", "A message with the role %s can contain only text.", role)
		}
		if p.text != "" {
			texts = append(texts, p.text)
		}
	}
	return strings.Join(texts, "\n")
}

// readCall reads a call of a tool.
func (c *responsesCall) readCall(kind string, f fieldList) {
	item := f.text("id")
	id := cmp.Or(f.text("call_id"), item)
	if id == "" {
		c.missing("call_id")
	}
	key := toolKey{f.text("namespace"), f.text("name")}
	tool := ToolName{Name: key.name, Namespace: key.namespace}
	arguments := ""
	switch kind {
	case "function_call":
		arguments = callArguments(c.typed(f, "arguments", valueType{"a string or an object", isTextOrObject}))
	case "custom_tool_call":
		tool.Kind = ToolCustom
		input := f.given("input")
		if input == nil {
			input = []byte(`""`)
		}
		arguments = string(append(appendText([]byte(`{"input":`), input), '}'))
	default:
		name := strings.TrimSuffix(kind, "_call")
		key = toolKey{name: name}
		tool = ToolName{Kind: builtinTools[name], Name: name}
		action := "action"
		if name == applyPatch {
			action = "operation"
		}
		arguments = callInput(c.typed(f, action, anObject))
	}
	if key.name == "" {
		c.missing("name")
	}
	if item != "" {
		if c.callIDs == nil {
			c.callIDs = make(map[string]string)
		}
		c.callIDs[item] = id
	}
	upstreamName := c.upstreamNames.called(key)
	c.tools.alias(upstreamName, tool)
	c.addPendingReasoning()
	c.conversation.addCall(responsesID(id), upstreamName, arguments)
}

// isTextOrObject reports whether a value is a string or an object.
func isTextOrObject(raw []byte) bool { return jsonscan.IsString(raw) || jsonscan.IsObject(raw) }

// callArguments returns the arguments of a function_call as a JSON object, which chat
// templates require.
func callArguments(raw []byte) string {
	if !jsonscan.IsString(raw) {
		return callInput(raw)
	}
	object, _ := normalArguments(jsonscan.Unquote(raw))
	return string(object)
}

// readOutput reads the result of a call. It refers to the call by call_id or, for some
// types, by the id of the call's item.
func (c *responsesCall) readOutput(kind string, f fieldList) {
	id := f.text("call_id")
	if id == "" {
		id = f.text("id")
		if call, ok := c.callIDs[id]; ok {
			id = call
		}
	}
	if id == "" {
		c.missing("call_id")
	}
	text, images := c.readResult(f, kind == "shell_call_output")
	if kind == "apply_patch_call_output" {
		switch status := f.text("status"); {
		case status == "failed":
			text = failedResult(text)
		case text == "":
			text = status
		}
	}
	c.conversation.addResult(responsesID(id), text, images)
}

// readResult returns the text and the images of a result. data is set if the result is
// JSON data, not a list of parts. A client may send a list of parts as a string.
func (c *responsesCall) readResult(f fieldList, data bool) (text string, images []contentPart) {
	raw := f.given("output")
	if jsonscan.IsString(raw) {
		text = jsonscan.Unquote(raw)
		list := []byte(strings.TrimSpace(text))
		if !jsonscan.IsArray(list) || !strings.Contains(text, `"input_image"`) || !jsonscan.Valid(list) {
			return text, nil
		}
		c.lenient, c.faulty = true, false
		parts := c.readParts(fieldList{{"output", list}}, "output")
		if c.lenient = false; c.faulty { // not a list of parts
			return text, nil
		}
		return resultText(parts)
	}
	if len(raw) > 0 && (data || !jsonscan.IsArray(raw)) {
		return string(compactJSON(raw)), nil
	}
	return resultText(c.readParts(f, "output"))
}

// resultText returns the text and the images of a result's parts. In the chat dialect, a
// tool message can only contain text, so images follow in a user message.
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
