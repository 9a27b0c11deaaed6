package dialect

import (
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Tools that clients run themselves and whose schema the API implies, by the
// name in front of their date.
var impliedTools = []struct{ prefix, description, parameters string }{
	{
		"bash_", "Runs a command in a persistent shell and returns its output.",
		`{"type":"object","properties":{"command":{"type":"string","description":"The command to run"},"restart":{"type":"boolean","description":"Restarts the shell"}}}`,
	},
	{
		"text_editor_", "Views, creates and edits text files.",
		`{"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert"]},"path":{"type":"string"},` +
			`"file_text":{"type":"string"},"old_str":{"type":"string"},"new_str":{"type":"string"},"insert_line":{"type":"integer"},"insert_text":{"type":"string"},` +
			`"view_range":{"type":"array","items":{"type":"integer"}}},"required":["command","path"]}`,
	},
	{
		"memory_", "Views and edits files of a memory directory.",
		`{"type":"object","properties":{"command":{"type":"string","enum":["view","create","str_replace","insert","delete","rename"]},"path":{"type":"string"},` +
			`"file_text":{"type":"string"},"old_str":{"type":"string"},"new_str":{"type":"string"},"insert_line":{"type":"integer"},"insert_text":{"type":"string"},` +
			`"old_path":{"type":"string"},"new_path":{"type":"string"},"view_range":{"type":"array","items":{"type":"integer"}}},"required":["command"]}`,
	},
}

// readTools reads the tools. Those that the API's servers would run are not
// available for a model of one's own; they are dropped.
func (c *messagesCall) readTools(fields fieldList) *Error {
	raw, err := c.typed(fields, "tools", "tools", anArray)
	if raw == nil {
		return err
	}
	path := &fieldPath{name: "tools", dots: true}
	for list := c.objects(raw); list.next(path, &err); {
		here := path.element(list.Index)
		err = c.readTool(readFields(list.Raw()), &here)
	}
	return err
}

// readTool reads one tool.
func (c *messagesCall) readTool(f fieldList, path *fieldPath) *Error {
	kind, name := f.text("type"), f.text("name")
	if kind == "" || kind == "custom" {
		if name == "" {
			return c.missing(path.of("name"))
		}
		if schema := given(f, "input_schema"); schema != nil && schema[0] != '{' {
			return c.wrongType(path.of("input_schema"), anObject.name, schema)
		}
		c.tools.add(name, ToolName{Name: name}, f.get("description"), given(f, "input_schema"), string(f.get("strict")) == "true")
		return nil
	}
	for _, implied := range impliedTools {
		if strings.HasPrefix(kind, implied.prefix) && name != "" {
			c.tools.add(name, ToolName{Name: name}, jsonscan.AppendQuoted(nil, implied.description), []byte(implied.parameters), false)
		}
	}
	return nil
}

// readToolChoice reads which tools are to be called. Model servers take a
// named choice for auto, and with "none" still show the tools to the model: so
// the tools that are not to be called are not sent.
func (c *messagesCall) readToolChoice(fields fieldList) *Error {
	raw, err := c.typed(fields, "tool_choice", "tool_choice", anObject)
	if raw == nil {
		return err
	}
	f := readFields(raw)
	if v := f.get("disable_parallel_tool_use"); jsonscan.IsBool(v) {
		c.parallel = strconv.FormatBool(v[0] == 'f')
	}
	switch kind := f.text("type"); kind {
	case "auto":
		c.choice = "auto"
	case "none":
		c.tools.clear()
	case "any":
		if len(c.tools.order) == 0 {
			return at("tool_choice", "none of the tools is available on this deployment")
		}
		c.choice = "required"
	case "tool":
		name := f.text("name")
		if !c.tools.offers(name) {
			return at("tool_choice.name", "%s is not available on this deployment", show(name))
		}
		c.tools.keep(func(upstreamName string) bool { return upstreamName == name })
		c.choice = "required"
	default:
		return at("tool_choice.type", "Input should be 'auto', 'any', 'tool' or 'none', not '%s'", show(kind))
	}
	return nil
}
