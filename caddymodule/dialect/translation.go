package dialect

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strconv"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
)

// translation is a decoded request of another dialect: the parts of the chat request, with
// a fixed order of keys, and the data that the answer's encoder needs.
type translation struct {
	reply
	fields           fieldList // of the request, while it is read
	size             int       // of the request in bytes: the initial capacity for the messages
	stream           bool
	countOnly        bool // the client wants a count of tokens, no answer
	conversation     conversation
	tools            toolset
	unavailable      *Error        // for the first tool that was dropped because of its type
	dropped          string        // parts that are not sent to the model, see drop
	choice           string        // tool_choice: "", "auto" or "required"
	parallel         string        // parallel_tool_calls: "", "true" or "false"
	parameters       []byte        // other members, each preceded by a comma
	effort           jsonscan.Span // the reasoning effort in parameters, if any
	effortParameters []byte        // what the option efforts has in its place, if anything

	cacheKey []byte // prompt_cache_key as JSON, nil if there is none
	messages []byte // the conversation as JSON, once it is complete
	toolList []byte // the tools as JSON, nil if there are none

	path     []step // of the current object
	elements int    // number of elements so far
	err      *Error // the first error
	// If lenient is set, errors set faulty instead of failing the request.
	lenient, faulty bool
}

// readHead finds the members of a request, and reads its model. Errors of other parts are set in t.err: that of an
// unknown model comes first.
func (t *translation) readHead(body []byte, env *Env, d Dialect) *Error {
	t.env, t.dialect, t.path, t.size = env, d, make([]step, 0, 6), len(body)
	m := jsonscan.Object(body)
	if m.Err() != nil {
		return notAnObject(body)
	}
	for m.Next() {
		t.fields.note(&m)
		if name := string(m.Name()); !jsonscan.IsNull(m.Raw()) && !slices.Contains(d.format().request, name) {
			t.drop(plainName(name), "")
		}
	}
	if !m.Whole() {
		return notJSON(m.Err())
	}
	t.model = cmp.Or(jsonscan.String(t.typed(t.fields, "model", aString)), env.DefaultModel)
	if t.model == "" {
		t.missing("model")
	}
	if t.err != nil {
		return t.err
	}
	t.stream = t.boolean(t.fields, "stream")
	return nil
}

// read reads parts of a request in order, up to the first error.
func (t *translation) read(parts ...func(fieldList)) {
	for _, part := range parts {
		if t.err == nil {
			part(t.fields)
		}
	}
}

// readRest reads the parts that depend on the deployment's options, and completes the request.
func (t *translation) readRest(o compat.Options, parts ...func(fieldList)) *Error {
	t.env.Options = o
	if t.read(parts...); t.err != nil {
		return t.err
	}
	t.output = cmp.Or(optionLimit(o.Force), t.output, optionLimit(o.Defaults))
	t.complete()
	return nil
}

// checkAddress rejects an address that the deployment does not allow.
func (t *translation) checkAddress(name, address string) {
	if t.env.Options.RemoteMedia != compat.RemoteAllow && isRemote(address) {
		t.badValue(name, noRemoteMedia)
	}
}

// addNumbers adds fields that must be numbers.
func (t *translation) addNumbers(f fieldList, names ...string) {
	for _, name := range names {
		if raw := t.typed(f, name, aNumber); raw != nil {
			t.addParameter(name, raw)
		}
	}
}

// addParameter adds a member whose value is JSON.
func (t *translation) addParameter(name string, raw []byte) {
	t.parameters = jsonscan.Appendf(t.parameters, `,"%s":%s`, name, raw)
}

// addSchema adds the schema of the answer. strict and description are JSON, and omitted if
// they have the wrong type.
func (t *translation) addSchema(name string, schema, strict, description []byte) {
	b := jsonscan.Appendf(nil, `{"type":"json_schema","json_schema":{"name":%q,"schema":%s`,
		cmp.Or(name, "output"), schema)
	if jsonscan.IsBool(strict) {
		b = jsonscan.Appendf(b, `,"strict":%s`, strict)
	}
	if jsonscan.IsString(description) {
		b = jsonscan.Appendf(b, `,"description":%s`, description)
	}
	t.addParameter("response_format", append(b, "}}"...))
}

// chooseMode applies a tool choice without a name. Some model servers treat a named choice
// as auto, and show tools to the model despite "none". Therefore only tools that may be
// called are sent.
func (t *translation) chooseMode(mode, name string) {
	switch mode {
	case "auto":
		t.choice = mode
	case "none":
		t.tools.order = nil // their names are still needed for the history
	case "required":
		if len(t.tools.order) == 0 {
			t.fault(name, "None of the tools is available on this deployment, so none can be required.")
		}
		t.choice = mode
	default:
		t.badValue(name, "'%s'. It must be auto, none, required or an object.", show(mode))
	}
}

// dropTool drops a tool of a type that the client does not run.
func (t *translation) dropTool(kind string) {
	t.drop("", kind)
	if t.unavailable != nil || t.lenient {
		return
	}
	t.unavailable = fieldError(t.dialect.format().field, t.fieldPath("type"), "unsupported_parameter",
		"Tools of type '%s' are not available on this deployment, and the request has no other tool. Remove it, or send a "+
			"tool that the client runs.", show(kind))
}

// needTool fails if tools were dropped and none is left: the model would invent their results. A
// client may forbid all tools, and may count tools one by one.
func (t *translation) needTool(f fieldList) {
	choice := f.given("tool_choice")
	none := jsonscan.String(choice) == "none" || jsonscan.Text(choice, "type") == "none"
	if t.unavailable != nil && len(t.tools.order) == 0 && !none && !t.countOnly && !t.compact {
		t.fail(t.unavailable)
	}
}

// chooseTool applies a tool choice with a name.
func (t *translation) chooseTool(upstreamName string) {
	t.tools.keep(func(name string) bool { return name == upstreamName })
	t.choice = "required"
}

// askEffort adds the reasoning effort of the client, as the deployment maps it. An effort that it does not map
// is added if passes is set.
func (t *translation) askEffort(level string, passes bool) {
	t.effortParameters = mappedEffort(t.env.Options, level)
	if t.env.Info != nil && (t.effortParameters != nil || passes) {
		t.env.Info.Effort = level
	}
	if t.effortParameters != nil || !passes {
		return
	}
	t.effort.Start = len(t.parameters)
	t.addParameter(reasoningEffort, jsonscan.AppendQuoted(nil, effortLevel(level)))
	t.effort.End = len(t.parameters)
}

// DropEffort implements Call.
func (t *translation) DropEffort() bool {
	if t.effort == (jsonscan.Span{}) && t.effortParameters == nil {
		return false
	}
	t.parameters = slices.Delete(t.parameters, t.effort.Start, t.effort.End)
	t.effort, t.effortParameters = jsonscan.Span{}, nil
	return true
}

// OutputLimit implements Call.
func (t *translation) OutputLimit() int64 { return t.output }

// LimitOutput implements Call.
func (t *translation) LimitOutput(n int64) { t.output = Lowest(t.output, n) }

// AnswerLimit implements Call.
func (t *translation) AnswerLimit() int64 { return t.output }

// FitAnswer implements Call.
func (t *translation) FitAnswer(n int64) { t.room = n }

// complete encodes the parts of the upstream's body.
func (t *translation) complete() {
	if t.compact {
		t.tools.order = nil
	}
	t.messages = t.conversation.appendMessages(make([]byte, 0, t.size))
	t.toolList = t.tools.list()
	if t.env.Info != nil {
		t.env.Info.Tools = len(t.tools.order) > 0
	}
	t.names = t.tools.names
	t.conversation, t.tools, t.fields = conversation{}, toolset{}, nil // free their texts
	t.prompt = tokens.NewPrompt(func() (messages, tools []byte) { return t.messages, t.toolList })
}

// Prompt implements Call.
func (t *translation) Prompt() *tokens.Prompt { return t.prompt }

// Streamed implements Call.
func (t *translation) Streamed() bool { return t.stream }

// Body implements Call. The messages come last, so that the bodies of a conversation share
// a prefix.
func (t *translation) Body(upstreamModel string) *Segments {
	head := jsonscan.Appendf(nil, `{"model":%q`, upstreamModel)
	if t.stream {
		head = append(head, `,"stream":true,"stream_options":{"include_usage":true}`...)
	}
	if t.output > 0 {
		head = strconv.AppendInt(append(head, `,"max_tokens":`...), Lowest(t.output, t.room), 10)
	}
	head = append(head, t.parameters...)
	if t.toolList != nil && t.parallel != "" {
		head = jsonscan.Appendf(head, `,"parallel_tool_calls":%s`, t.parallel)
	}
	if hasParameters(t.env.Options) {
		head = t.mergeParameters(head)
	}
	s := new(Segments)
	s.add(head)
	if t.toolList != nil {
		s.add([]byte(`,"tools":`))
		s.add(t.toolList)
		if t.choice != "" {
			s.add(jsonscan.Appendf(nil, `,"tool_choice":%q`, t.choice))
		}
	}
	s.add([]byte(`,"messages":`))
	s.add(t.messages)
	s.add([]byte{'}'})
	return s
}

// toolset holds the tools of a request as functions of a chat request.
type toolset struct {
	names map[string]ToolName // by upstream name
	order []offeredTool
	json  []byte // all chat tools, each preceded by a comma
}

// offeredTool is a tool that the model may call.
type offeredTool struct {
	upstreamName string
	json         jsonscan.Span // in toolset.json
}

// add adds a function unless its name is taken. description is a JSON string or nil,
// parameters a JSON schema or nil.
func (s *toolset) add(upstreamName string, tool ToolName, description, parameters []byte, strict bool) {
	if _, ok := s.names[upstreamName]; ok {
		return
	}
	from := len(s.json)
	b := jsonscan.Appendf(s.json, `,{"type":"function","function":{"name":%q`, upstreamName)
	if jsonscan.IsString(description) {
		b = jsonscan.Appendf(b, `,"description":%s`, description)
	}
	b = appendSchema(append(b, `,"parameters":`...), parameters)
	if strict {
		b = append(b, `,"strict":true`...)
	}
	s.json = append(b, "}}"...)
	tool.offered, tool.end = true, len(s.json)
	s.alias(upstreamName, tool)
	s.order = append(s.order, offeredTool{upstreamName, jsonscan.Span{Start: from, End: len(s.json)}})
}

// offers reports whether the request offers a tool with this name.
func (s *toolset) offers(upstreamName string) bool { return s.names[upstreamName].offered }

// alias maps an upstream name to the client's, even if the tool is not offered, as for
// calls in the history.
func (s *toolset) alias(upstreamName string, tool ToolName) {
	if _, ok := s.names[upstreamName]; ok {
		return
	}
	if s.names == nil {
		s.names = make(map[string]ToolName)
	}
	s.names[upstreamName] = tool
}

// keep drops all tools except those for which ok is true.
func (s *toolset) keep(ok func(upstreamName string) bool) {
	s.order = slices.DeleteFunc(s.order, func(t offeredTool) bool { return !ok(t.upstreamName) })
}

// dropReplaced drops tools that are no longer offered, or have a later definition.
func (s *toolset) dropReplaced() {
	s.order = slices.DeleteFunc(s.order, func(t offeredTool) bool {
		tool := s.names[t.upstreamName]
		return !tool.offered || tool.end != t.json.End
	})
}

// list returns the tools as a JSON array, nil if there are none, because some upstreams
// reject an empty array. The toolset must not be used afterwards.
func (s *toolset) list() []byte {
	if len(s.order) == 0 {
		return nil
	}
	b := s.json[:0]
	for _, t := range s.order { // in place: tools only move towards the start
		b = append(b, t.json.Bytes(s.json)...)
	}
	b[0] = '['
	return append(b, ']')
}

// appendSchema appends a function's parameters. It adds a missing type and properties, which
// chat templates and grammars require.
func appendSchema(b, schema []byte) []byte {
	if !jsonscan.IsObject(schema) {
		schema = []byte("{}")
	}
	start, end := "", ""
	if jsonscan.Member(schema, "type") == nil {
		start = `"type":"object"`
		if jsonscan.IsFilled(schema) {
			start += ","
		}
	}
	if jsonscan.Member(schema, "properties") == nil {
		end = `,"properties":{}`
	}
	return jsonscan.Appendf(b, `{%s%s%s}`, start, schema[1:len(schema)-1], end)
}

// stableID returns a deterministic replacement for an id that a dialect does not allow.
func stableID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "call_" + base32.StdEncoding.EncodeToString(sum[:])[:24]
}
