package dialect

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Names of tools that clients of this dialect have by their type.
const (
	localShell = "local_shell"
	shell      = "shell"
	applyPatch = "apply_patch"
)

// builtinTools are the tools whose schema their type implies.
var builtinTools = map[string]struct {
	kind                    ToolKind
	description, parameters string
}{
	localShell: {
		ToolLocalShell, "Runs a command on the user's machine and returns its output.",
		`{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"},"description":"The program and its arguments"},` +
			`"workdir":{"type":"string","description":"The directory to run in"},"timeout_ms":{"type":"integer"},` +
			`"env":{"type":"object","additionalProperties":{"type":"string"}}},"required":["command"]}`,
	},
	shell: {
		ToolShell, "Runs shell commands and returns their output.",
		`{"type":"object","properties":{"commands":{"type":"array","items":{"type":"string"},"description":"The commands, each a shell command line"},` +
			`"timeout_ms":{"type":"integer"},"max_output_length":{"type":"integer"}},"required":["commands"]}`,
	},
	applyPatch: {
		ToolApplyPatch, "Creates, updates or deletes a file.",
		`{"type":"object","properties":{"type":{"type":"string","enum":["create_file","update_file","delete_file"]},"path":{"type":"string"},` +
			`"diff":{"type":"string","description":"The change as a V4A diff; none for delete_file"}},"required":["type","path"]}`,
	},
}

// customParameters is the schema of the function that stands for a tool with
// free text.
const customParameters = `{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}`

// toolKey is how a client names a tool.
type toolKey struct{ namespace, name string }

// upstreamNames gives tools the names that the upstream knows them by. The name
// of a tool is the same in all requests that have the same tools before it.
type upstreamNames struct {
	names map[toolKey]string
	taken map[string]bool
}

// of is the upstream's name of a tool. A name that is too long, or taken by
// another tool, ends in a hash.
func (n *upstreamNames) of(key toolKey) string {
	if upstreamName, ok := n.names[key]; ok {
		return upstreamName
	}
	if n.names == nil {
		n.names, n.taken = make(map[toolKey]string), make(map[string]bool)
	}
	const limit = 64
	upstreamName := key.name
	if key.namespace != "" {
		upstreamName = strings.TrimSuffix(key.namespace, "__") + "__" + key.name
	}
	if len(upstreamName) > limit || n.taken[upstreamName] {
		sum := sha256.Sum256([]byte(key.namespace + "\x00" + key.name))
		mark := "_" + hex.EncodeToString(sum[:6])
		cut := min(len(upstreamName), limit-len(mark))
		for cut < len(upstreamName) && !utf8.RuneStart(upstreamName[cut]) {
			cut--
		}
		upstreamName = upstreamName[:cut] + mark
	}
	n.names[key], n.taken[upstreamName] = upstreamName, true
	return upstreamName
}

// called is the upstream's name of a tool in the history. A client may call a
// tool of a namespace by the name that the upstream has for it.
func (n *upstreamNames) called(key toolKey) string {
	if _, ok := n.names[key]; !ok && key.namespace == "" && n.taken[key.name] {
		return key.name
	}
	return n.of(key)
}

// readTools reads the tools, and those that items of the input bring: they
// come behind, and only if their name is free.
func (c *responsesCall) readTools(f fieldList) {
	if raw := c.typed(f, "tools", anArray); raw != nil {
		c.reserve(raw)
		c.readToolList(f, "")
		c.noteEcho("tools", echoedTools(raw))
	}
	// A tool of an item that cannot be read is left out: the item is the client's own
	// doing, which its user cannot change.
	c.lenient = true
	for _, i := range c.toolItems {
		c.readToolList(readFields(c.items[i].raw), "")
	}
	c.lenient = false
}

// readToolList reads the tools in a list, or in a namespace.
func (c *responsesCall) readToolList(f fieldList, namespace string) {
	if tools := f.given("tools"); tools == nil || tools[0] != '[' {
		return
	}
	for list := c.objects(f, "tools"); list.next(); {
		c.readTool(list.fields, namespace)
	}
}

// reserve has the tools that are in no namespace keep their names.
func (c *responsesCall) reserve(tools []byte) {
	for m := jsonscan.Checked(tools); m.Next(); {
		switch kind := jsonscan.Text(m.Raw(), "type"); kind {
		case "", "function", "custom":
			if name := toolFields(m.Raw()).text("name"); name != "" {
				c.upstreamNames.of(toolKey{name: name})
			}
		case localShell, shell, applyPatch:
			c.upstreamNames.of(toolKey{name: kind})
		}
	}
}

// toolFields are the members of a tool; none if it is not an object.
func toolFields(raw []byte) fieldList {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	return unwrapped(readFields(raw))
}

// unwrapped are the members of a tool. Some clients wrap them as the chat dialect
// does.
func unwrapped(f fieldList) fieldList {
	if inner, ok := f.inner("function"); ok && f.given("name") == nil {
		return inner
	}
	return f
}

// readTool reads one tool. Those that the API's servers would run, and those
// that are not known, are not there for a model of one's own.
func (c *responsesCall) readTool(f fieldList, namespace string) {
	switch kind := f.text("type"); kind {
	case "", "function", "custom":
		c.readFunction(f, namespace)
	case "namespace":
		c.readNamespace(f, namespace)
	default:
		if builtin, ok := builtinTools[kind]; ok && namespace == "" {
			to := ToolName{Kind: builtin.kind, Name: kind}
			c.tools.add(c.upstreamNames.of(toolKey{name: kind}), to, jsonscan.AppendQuoted(nil, builtin.description), []byte(builtin.parameters), false)
		}
	}
}

// readNamespace reads the tools of a namespace that is in none itself.
func (c *responsesCall) readNamespace(f fieldList, outer string) {
	if outer != "" {
		return
	}
	name := f.text("name")
	if name == "" {
		c.missing("name")
		return
	}
	if c.typed(f, "tools", anArray) != nil {
		c.readToolList(f, name)
	}
}

// readFunction reads a function, or a tool that takes free text: for the
// upstream that is a function with one string, since chat knows nothing else.
func (c *responsesCall) readFunction(f fieldList, namespace string) {
	custom := f.text("type") == "custom"
	f = unwrapped(f)
	name := f.text("name")
	if name == "" {
		c.missing("name")
		return
	}
	to := ToolName{Name: name, Namespace: namespace}
	upstreamName := c.upstreamNames.of(toolKey{namespace, name})
	if custom {
		to.Kind = ToolCustom
		c.tools.add(upstreamName, to, customDescription(f), []byte(customParameters), false)
		return
	}
	parameters := f.given("parameters")
	if parameters != nil && parameters[0] != '{' {
		c.wrongType("parameters", anObject.name, parameters)
		return
	}
	c.tools.add(upstreamName, to, f.get("description"), parameters, string(f.get("strict")) == "true")
}

// customDescription is the description of a tool with free text, as a JSON
// string: a grammar can only be shown to the model. nil if there is
// neither.
func customDescription(f fieldList) []byte {
	text := f.text("description")
	if format := f.given("format"); jsonscan.Text(format, "type") == "grammar" {
		syntax := jsonscan.Text(format, "syntax")
		if syntax != "" {
			syntax += " "
		}
		if text != "" {
			text += "\n\n"
		}
		text += "The input must follow this " + syntax + "grammar:\n" + jsonscan.Text(format, "definition")
	}
	if text == "" {
		return nil
	}
	return jsonscan.AppendQuoted(nil, text)
}

// echoedTools is the tools as the response shows them: functions with all
// keys, which clients' types demand, others as they came.
func echoedTools(raw []byte) []byte {
	b := append(make([]byte, 0, len(raw)), '[')
	for m := jsonscan.Checked(raw); m.Next(); {
		if m.Index > 0 {
			b = append(b, ',')
		}
		if jsonscan.Text(m.Raw(), "type") != "function" {
			b = append(b, m.Raw()...)
			continue
		}
		f := toolFields(m.Raw())
		b = jsonscan.AppendQuoted(append(b, `{"type":"function","name":`...), f.text("name"))
		for _, name := range [...]string{"description", "parameters", "strict"} {
			b = append(append(append(b, `,"`...), name...), `":`...)
			b = appendRawOrNull(b, f.get(name))
		}
		b = append(b, '}')
	}
	return append(b, ']')
}
