package dialect

import (
	"cmp"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// readToolChoice reads the tool choice.
func (c *responsesCall) readToolChoice(f fieldList) {
	const name = "tool_choice"
	raw := f.given(name)
	if raw == nil {
		return
	}
	c.noteEcho(name, raw)
	if jsonscan.IsString(raw) {
		c.chooseMode(jsonscan.Unquote(raw), name)
		return
	}
	choice, ok := f.inner(name)
	if !ok {
		c.wrongType(name, "a string or an object", raw)
		return
	}
	c.path = append(c.path, step{name, -1})
	if choice.text("type") == "allowed_tools" {
		c.allowTools(choice)
	} else {
		c.chooseTool(c.chosen(choice))
	}
	c.path = c.path[:0]
}

// allowTools removes the tools that are not in a choice's list.
func (c *responsesCall) allowTools(f fieldList) {
	if c.typed(f, "tools", anArray) == nil {
		c.missing("tools")
		return
	}
	allowed, namespaces := make(map[string]bool), make(map[string]bool)
	for list := c.objects(f, "tools"); list.next(); {
		switch kind := list.fields.text("type"); {
		case kind == "namespace":
			namespaces[list.fields.text("name")] = true
		case isCallable(kind):
			allowed[c.chosen(list.fields)] = true
		default:
			c.dropTool(kind)
		}
	}
	c.tools.keep(func(upstreamName string) bool {
		return allowed[upstreamName] || namespaces[c.tools.names[upstreamName].Namespace]
	})
	mode := cmp.Or(f.text("mode"), "auto")
	if mode != "none" {
		c.needTool(nil)
	}
	c.chooseMode(mode, "mode")
}

// isCallable reports whether tools of this type run in the client.
func isCallable(kind string) bool {
	_, builtin := builtinTools[kind]
	return builtin || kind == "function" || kind == "custom"
}

// chosen returns the upstream's name of the tool in a choice.
func (c *responsesCall) chosen(f fieldList) string {
	kind, tool := f.text("type"), unwrapped(f)
	name := tool.text("name")
	if _, ok := builtinTools[kind]; ok {
		name = kind
	}
	upstreamName := c.upstreamNames.called(toolKey{tool.text("namespace"), name})
	switch {
	case !isCallable(kind):
		c.fail(invalid(c.fieldPath("type"), "unsupported_parameter",
			"Tools of type '%s' are not available on this deployment.", show(kind)))
	case name == "":
		c.missing("name")
	case !c.tools.offers(upstreamName):
		c.fault("name", "The tool '%s' is not among the tools of this request.", show(name))
	}
	return upstreamName
}
