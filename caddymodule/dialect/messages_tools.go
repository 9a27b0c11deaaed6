package dialect

import (
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Client-side tools whose schema the API implies, by the prefix of their type before the
// date.
var impliedTools = []struct{ prefix, description, parameters string }{
	{
		"bash_", "Runs a command in a persistent shell and returns its output.",
		`{"type":"object","properties":{"command":{"type":"string","description":"The command to run"},` +
			`"restart":{"type":"boolean","description":"Restarts the shell"}}}`,
	},
	{
		"text_editor_", "Views, creates and edits text files.",
		`{"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert"]},` +
			`"path":{"type":"string"},` +
			`"file_text":{"type":"string"},"old_str":{"type":"string"},"new_str":{"type":"string"},` +
			`"insert_line":{"type":"integer"},"insert_text":{"type":"string"},` +
			`"view_range":{"type":"array","items":{"type":"integer"}}},"required":["command","path"]}`,
	},
	{
		"memory_", "Views and edits files of a memory directory.",
		`{"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert",` +
			`"delete","rename"]},"path":{"type":"string"},` +
			`"file_text":{"type":"string"},"old_str":{"type":"string"},"new_str":{"type":"string"},` +
			`"insert_line":{"type":"integer"},"insert_text":{"type":"string"},` +
			`"old_path":{"type":"string"},"new_path":{"type":"string"},"view_range":{"type":"array",` +
			`"items":{"type":"integer"}}},"required":["command"]}`,
	},
}

// readTools reads the tools. Server-side tools are not available and are dropped next to others.
func (c *messagesCall) readTools(f fieldList) {
	c.typed(f, "tools", aList)
	for list := c.objects(f, "tools"); list.next(); {
		c.readTool(list.fields)
	}
}

// readTool reads one tool.
func (c *messagesCall) readTool(f fieldList) {
	kind, name := f.text("type"), f.text("name")
	if kind == "" || kind == "custom" {
		if name == "" {
			c.missing("name")
		}
		schema := c.typed(f, "input_schema", anObject)
		c.tools.add(name, ToolName{Name: name}, f.get("description"), schema, string(f.get("strict")) == "true")
		return
	}
	for _, implied := range impliedTools {
		if strings.HasPrefix(kind, implied.prefix) && name != "" {
			c.tools.add(name, ToolName{Name: name}, jsonscan.AppendQuoted(nil, implied.description),
				[]byte(implied.parameters), false)
			return
		}
	}
	c.dropTool(kind)
}

// readToolChoice reads the tool choice.
func (c *messagesCall) readToolChoice(f fieldList) {
	if c.typed(f, "tool_choice", anObject) == nil {
		return
	}
	choice, _ := f.inner("tool_choice")
	if v := c.typed(choice, "tool_choice.disable_parallel_tool_use", aBool); v != nil {
		c.parallel = strconv.FormatBool(v[0] == 'f')
	}
	switch kind := choice.text("type"); kind {
	case "auto", "none":
		c.chooseMode(kind, "tool_choice")
	case "any":
		c.chooseMode("required", "tool_choice")
	case "tool":
		name := choice.text("name")
		if !c.tools.offers(name) {
			c.fault("tool_choice.name", "%s is not available on this deployment", show(name))
		}
		c.chooseTool(name)
	default:
		c.fault("tool_choice.type", "Input should be 'auto', 'any', 'tool' or 'none', not '%s'", show(kind))
	}
}
