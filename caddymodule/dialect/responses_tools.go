package dialect

import (
	"crypto/sha256"
	_ "embed" // for the schemas of tools
	"encoding/hex"
	"strings"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Types of tools without a name, which also serve as their names.
const (
	localShell = "local_shell"
	shell      = "shell"
	applyPatch = "apply_patch"
)

// builtinTools are the tools whose schema their type implies.
var builtinTools = map[string]ToolKind{localShell: ToolLocalShell, shell: ToolShell, applyPatch: ToolApplyPatch}

//go:embed builtin_tools.json
var builtinSchemas []byte // the description and the parameters of each

// customParameters is the schema of the upstream's function for a custom tool.
const customParameters = `{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}`

// toolKey is how a client names a tool.
type toolKey struct{ namespace, name string }

// upstreamNames assigns upstream names to tools. A name depends only on the tool and the
// tools before it.
type upstreamNames struct {
	names map[toolKey]string
	taken map[string]bool
}

// assign returns the upstream's name of a tool. A name that is too long or already taken ends
// in a hash.
func (n *upstreamNames) assign(key toolKey) string {
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

// called returns the upstream's name of a tool in the history. A client may use the
// upstream's name for a tool in a namespace.
func (n *upstreamNames) called(key toolKey) string {
	if _, ok := n.names[key]; !ok && key.namespace == "" && n.taken[key.name] {
		return key.name
	}
	return n.assign(key)
}

// readTools reads the tools of the request, and then those of input items whose names are
// not taken.
func (c *responsesCall) readTools(f fieldList) {
	if raw := c.typed(f, "tools", anArray); raw != nil {
		c.reserveNames(raw)
		c.readToolList(f, "")
		c.noteEcho("tools", echoedTools(raw))
	}
	// Invalid tools of items are dropped, because users cannot change the items that
	// their clients generate.
	c.lenient = true
	for _, i := range c.toolItems {
		c.path = append(c.path, c.items[i].step())
		c.readToolList(readFields(c.items[i].raw), "")
		c.path = c.path[:0]
	}
	c.lenient = false
}

// readToolList reads the tools in a list, or in a namespace.
func (c *responsesCall) readToolList(f fieldList, namespace string) {
	if tools := f.given("tools"); !jsonscan.IsArray(tools) {
		return
	}
	for list := c.objects(f, "tools"); list.next(); c.faulty = false {
		if c.readTool(list.fields, namespace); c.faulty {
			c.drop("", list.fields.text("type"))
		}
	}
}

// reserveNames reserves the names of the tools without a namespace.
func (c *responsesCall) reserveNames(tools []byte) {
	for m := jsonscan.Checked(tools); m.Next(); {
		switch kind := jsonscan.Text(m.Raw(), "type"); kind {
		case "", "function", "custom":
			if name := toolFields(m.Raw()).text("name"); name != "" {
				c.upstreamNames.assign(toolKey{name: name})
			}
		case localShell, shell, applyPatch:
			c.upstreamNames.assign(toolKey{name: kind})
		}
	}
}

// toolFields returns the members of a tool, none if it is not an object.
func toolFields(raw []byte) fieldList {
	if !jsonscan.IsObject(raw) {
		return nil
	}
	return unwrapped(readFields(raw))
}

// unwrapped returns the members of a tool. Some clients nest them in "function", as in the
// chat dialect.
func unwrapped(f fieldList) fieldList {
	if inner, ok := f.inner("function"); ok && f.given("name") == nil {
		return inner
	}
	return f
}

// readTool reads one tool. Server-side and unknown tools are dropped next to others.
func (c *responsesCall) readTool(f fieldList, namespace string) {
	switch kind := f.text("type"); kind {
	case "", "function", "custom":
		c.readFunction(f, namespace)
	case "namespace":
		c.readNamespace(f, namespace)
	default:
		builtin, ok := builtinTools[kind]
		if !ok || namespace != "" {
			c.dropTool(kind)
			return
		}
		schema := jsonscan.Member(builtinSchemas, kind)
		c.tools.add(c.upstreamNames.assign(toolKey{name: kind}), ToolName{Kind: builtin, Name: kind},
			jsonscan.Member(schema, "description"), jsonscan.Member(schema, "parameters"), false)
	}
}

// readNamespace reads the tools of a namespace. Nested namespaces are dropped.
func (c *responsesCall) readNamespace(f fieldList, outer string) {
	if outer != "" {
		c.drop("", "namespace")
		return
	}
	name := f.text("name")
	if name == "" {
		c.missing("name")
		return
	}
	if before := len(c.tools.order); c.typed(f, "tools", anArray) != nil {
		c.readToolList(f, name)
		if text := f.text("description"); text != "" && len(c.tools.order) > before {
			c.conversation.addSystem("Tools of " + name + ": " + text)
		}
	}
}

// readFunction reads a function or a custom tool, which takes free text. For the upstream,
// a custom tool is a function with one string.
func (c *responsesCall) readFunction(f fieldList, namespace string) {
	custom := f.text("type") == "custom"
	f = unwrapped(f)
	name := f.text("name")
	if name == "" {
		c.missing("name")
		return
	}
	c.dropMembers(f)
	tool := ToolName{Name: name, Namespace: namespace}
	upstreamName := c.upstreamNames.assign(toolKey{namespace, name})
	if custom {
		tool.Kind = ToolCustom
		c.tools.add(upstreamName, tool, customDescription(f), []byte(customParameters), false)
		return
	}
	parameters := f.given("parameters")
	if parameters != nil && !jsonscan.IsObject(parameters) {
		c.wrongType("parameters", anObject.name, parameters)
		return
	}
	c.tools.add(upstreamName, tool, withJSON(f.get("description"), "JSON schema of the output", f.given("output_schema")),
		parameters, string(f.get("strict")) == "true")
}

// customDescription returns the description of a custom tool as a JSON string, or nil. It
// includes the tool's grammar.
func customDescription(f fieldList) []byte {
	text := f.text("description")
	if format := f.given("format"); jsonscan.Text(format, "type") == "grammar" {
		syntax := strings.TrimLeft(jsonscan.Text(format, "syntax")+" ", " ")
		text += "\n\nThe input must follow this " + syntax + "grammar:\n" + jsonscan.Text(format, "definition")
		text = strings.TrimPrefix(text, "\n\n")
	}
	if text == "" {
		return nil
	}
	return jsonscan.AppendQuoted(nil, text)
}

// echoedTools returns the tools for the response. Functions have all keys that clients'
// types require. Other tools are unchanged.
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
		b = jsonscan.Appendf(b, `{"type":"function","name":%q,"description":%n,"parameters":%n,"strict":%n}`,
			f.text("name"), f.get("description"), f.get("parameters"), f.get("strict"))
	}
	return append(b, ']')
}
