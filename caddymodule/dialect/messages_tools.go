package dialect

import (
	"bytes"
	_ "embed" // for the schemas of tools
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

//go:embed client_tools.json
var clientToolsText []byte

// clientTools are tools that clients run and whose schema the API implies. A row with names is a part of a toolset.
var clientTools = func() (tools []struct {
	Type        string // before the date
	Toolset     string // in calls
	Names       []string
	Off         bool // unless the request enables it
	Description string
	Settings    []struct{ Member, Text string } // the description has the text with the number that the tool has
	Parameters  json.RawMessage
},
) {
	if err := json.Unmarshal(clientToolsText, &tools); err != nil {
		panic(err)
	}
	return tools
}()

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
		description := withJSON(f.get("description"), "Examples of inputs", f.given("input_examples"))
		c.tools.add(name, ToolName{Name: name}, description, schema, string(f.get("strict")) == "true")
	} else if !c.offerClientTools(kind, f) {
		c.dropTool(kind)
		return
	}
	c.dropMembers(f)
}

// withJSON appends an object or a list to a description, which is a JSON string or nil.
func withJSON(description []byte, title string, value []byte) []byte {
	if !jsonscan.IsFilled(value) {
		return description
	}
	text := jsonscan.String(description) + "\n\n" + title + ": " + string(compactJSON(value))
	return jsonscan.AppendQuoted(nil, strings.TrimSpace(text))
}

// dropMembers notes what a tool cannot have here: only code as its caller, asynchronous calls, a zoom.
func (t *translation) dropMembers(f fieldList) {
	callers := f.given("allowed_callers")
	if jsonscan.IsFilled(callers) && !bytes.Contains(callers, []byte(`"direct"`)) {
		t.drop("allowed_callers", "indirect")
	}
	for _, name := range [...]string{"async", "enable_zoom"} {
		if string(f.get(name)) == "true" {
			t.drop(name, "true")
		}
	}
}

// offerClientTools offers the tools that an entry of this type stands for. It returns false if there are none.
func (c *messagesCall) offerClientTools(kind string, f fieldList) (ok bool) {
	enabled := make(map[string]string)
	for m := jsonscan.Checked(f.get("configs")); m.Next() && len(enabled) < len(clientTools); {
		enabled[string(m.Name())] = string(jsonscan.Member(m.Raw(), "enabled"))
	}
	for _, t := range clientTools {
		if !strings.HasPrefix(kind, t.Type) {
			continue
		}
		if t.Toolset == "" {
			t.Names = []string{f.text("name")}
		}
		for _, s := range t.Settings {
			if n, given := jsonscan.Integer(f.get(s.Member)); given {
				t.Description += fmt.Sprintf(s.Text, n)
			}
		}
		for _, name := range t.Names {
			ok = name != ""
			if on := enabled[name]; ok && (on == "true" || on != "false" && !t.Off) && c.count() {
				c.tools.add(memberName(t.Toolset, name), ToolName{Name: name, Namespace: t.Toolset},
					jsonscan.AppendQuoted(nil, t.Description), t.Parameters, false)
			}
		}
	}
	return ok
}

// memberName returns the upstream's name of a tool in a toolset, if any. Toolsets have tools of the same name.
func memberName(toolset, name string) string { return strings.TrimPrefix(toolset+"__"+name, "__") }

// readToolChange reads a block of the history that adds or removes a tool. Another block is dropped.
func (c *messagesCall) readToolChange(f fieldList) {
	reference, _ := f.inner("tool")
	definition, defined := reference.inner("definition")
	name := reference.text("name")
	tool, known := c.tools.names[name]
	switch kind := f.text("type"); {
	case kind == "tool_addition" && defined:
		delete(c.tools.names, definition.text("name")) // it replaces an earlier definition
		c.path = append(c.path, step{"tool.definition", -1})
		c.readTool(definition)
		c.path = c.path[:len(c.path)-1]
	case kind == "tool_addition" && known, kind == "tool_removal" && known:
		tool.offered = kind == "tool_addition"
		c.tools.names[name] = tool
	case kind != "tool_removal":
		c.drop("", kind)
	}
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
