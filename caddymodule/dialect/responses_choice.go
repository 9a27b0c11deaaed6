package dialect

// readToolChoice reads which tools are to be called. Model servers take a
// named choice for auto, and with "none" still show the tools to the model: so
// the tools that are not to be called are not sent.
func (c *responsesCall) readToolChoice(fields map[string][]byte) *Error {
	raw := given(fields, "tool_choice")
	if raw == nil {
		return nil
	}
	c.noteEcho("tool_choice", raw)
	switch {
	case isString(raw):
		return c.chooseMode(unquote(raw), "tool_choice")
	case raw[0] != '{':
		return wrongType("tool_choice", "a string or an object", raw)
	}
	f := fieldsByName(raw)
	if stringOf(f["type"]) == "allowed_tools" {
		return c.allowTools(f)
	}
	flat, err := c.chosen(raw, "tool_choice")
	if err != nil {
		return err
	}
	c.tools.keep(func(name string) bool { return name == flat })
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
func (c *responsesCall) allowTools(f map[string][]byte) *Error {
	const path = "tool_choice.tools"
	list := given(f, "tools")
	if list == nil {
		return missing(path)
	}
	if list[0] != '[' {
		return wrongType(path, "an array", list)
	}
	allowed := make(map[string]bool)
	for m := checkedMembers(list); m.next(); {
		here := element(path, m.index)
		if m.raw()[0] != '{' {
			return wrongType(here, "an object", m.raw())
		}
		switch kind := textField(m.raw(), "type"); {
		case kind == "namespace":
			c.allowNamespace(allowed, textField(m.raw(), "name"))
		case isCallable(kind):
			flat, err := c.chosen(m.raw(), here)
			if err != nil {
				return err
			}
			allowed[flat] = true
		}
	}
	c.tools.keep(func(flat string) bool { return allowed[flat] })
	mode := stringOf(f["mode"])
	if mode == "" {
		mode = "auto"
	}
	return c.chooseMode(mode, "tool_choice.mode")
}

// allowNamespace allows all tools of a namespace.
func (c *responsesCall) allowNamespace(allowed map[string]bool, namespace string) {
	for _, flat := range c.tools.order {
		if c.tools.names[flat].Namespace == namespace {
			allowed[flat] = true
		}
	}
}

// isCallable reports whether a type of tools can be offered to a model of
// one's own.
func isCallable(kind string) bool {
	_, builtin := builtinTools[kind]
	return builtin || kind == "function" || kind == "custom"
}

// chosen is the upstream's name of the tool that a choice names.
func (c *responsesCall) chosen(raw []byte, path string) (string, *Error) {
	f := toolFields(raw)
	kind, name := textField(raw, "type"), stringOf(f["name"])
	if !isCallable(kind) {
		return "", invalid(path+".type", "unsupported_parameter", "Tools of type '%s' are not available on this deployment.", show(kind))
	}
	if _, ok := builtinTools[kind]; ok {
		name = kind
	}
	if name == "" {
		return "", missing(path + ".name")
	}
	flat := c.flat.called(toolKey{stringOf(f["namespace"]), name})
	if _, ok := c.tools.raw[flat]; !ok {
		return "", invalid(path+".name", "", "The tool '%s' is not among the tools of this request.", show(name))
	}
	return flat, nil
}
