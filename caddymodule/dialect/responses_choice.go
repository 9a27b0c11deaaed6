package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/jsonscan"

// readToolChoice reads which tools are to be called. Model servers take a
// named choice for auto, and with "none" still show the tools to the model: so
// the tools that are not to be called are not sent.
func (c *responsesCall) readToolChoice(fields fieldList) *Error {
	raw := given(fields, "tool_choice")
	if raw == nil {
		return nil
	}
	c.noteEcho("tool_choice", raw)
	switch {
	case jsonscan.IsString(raw):
		return c.chooseMode(jsonscan.Unquote(raw), "tool_choice")
	case raw[0] != '{':
		return wrongType("tool_choice", "a string or an object", raw)
	}
	f := readFields(raw)
	if f.text("type") == "allowed_tools" {
		return c.allowTools(f)
	}
	upstreamName, err := c.chosen(raw, &fieldPath{name: "tool_choice"})
	if err != nil {
		return err
	}
	c.tools.keep(func(name string) bool { return name == upstreamName })
	c.choice = "required"
	return nil
}

// chooseMode takes a choice that names no tool.
func (c *responsesCall) chooseMode(mode, path string) *Error {
	switch mode {
	case "auto":
		c.choice = mode
	case "none":
		c.tools.clear()
	case "required":
		if len(c.tools.order) == 0 {
			return invalid(path, "", "None of the tools is available on this deployment, so none can be required.")
		}
		c.choice = mode
	default:
		return invalid(path, "", "Invalid value for %s: '%s'. It must be auto, none, required or an object.", path, show(mode))
	}
	return nil
}

// allowTools leaves only the tools of a choice's list.
func (c *responsesCall) allowTools(f fieldList) *Error {
	tools := fieldPath{name: "tool_choice.tools"}
	list := given(f, "tools")
	if list == nil {
		return missing(tools.String())
	}
	if list[0] != '[' {
		return wrongType(tools.String(), "an array", list)
	}
	allowed, namespaces := make(map[string]bool), make(map[string]bool)
	var err *Error
	for m := c.objects(list); m.next(&tools, &err); {
		here := tools.element(m.Index)
		switch kind := jsonscan.Text(m.Raw(), "type"); {
		case kind == "namespace":
			namespaces[jsonscan.Text(m.Raw(), "name")] = true
		case isCallable(kind):
			upstreamName, err := c.chosen(m.Raw(), &here)
			if err != nil {
				return err
			}
			allowed[upstreamName] = true
		}
	}
	c.tools.keep(func(upstreamName string) bool {
		return allowed[upstreamName] || namespaces[c.tools.names[upstreamName].Namespace]
	})
	if err != nil {
		return err
	}
	mode := f.text("mode")
	if mode == "" {
		mode = "auto"
	}
	return c.chooseMode(mode, "tool_choice.mode")
}

// isCallable reports whether a type of tools can be offered to a model of
// one's own.
func isCallable(kind string) bool {
	_, builtin := builtinTools[kind]
	return builtin || kind == "function" || kind == "custom"
}

// chosen is the upstream's name of the tool that a choice names.
func (c *responsesCall) chosen(raw []byte, path *fieldPath) (string, *Error) {
	f := toolFields(raw)
	kind, name := jsonscan.Text(raw, "type"), f.text("name")
	if !isCallable(kind) {
		return "", invalid(path.of("type"), "unsupported_parameter", "Tools of type '%s' are not available on this deployment.", show(kind))
	}
	if _, ok := builtinTools[kind]; ok {
		name = kind
	}
	if name == "" {
		return "", missing(path.of("name"))
	}
	upstreamName := c.upstreamNames.called(toolKey{f.text("namespace"), name})
	if !c.tools.offers(upstreamName) {
		return "", invalid(path.of("name"), "", "The tool '%s' is not among the tools of this request.", show(name))
	}
	return upstreamName, nil
}
