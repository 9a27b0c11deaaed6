package dialect

import (
	"maps"
	"path"
	"slices"
	"strings"
)

// baseRequests are requests without any optional part.
var baseRequests = map[Dialect]map[string]string{
	Chat: {
		"model": `"public"`, "messages": `[{"role":"user","content":"u"}]`,
		"prompt": `"u"`, "input": `"u"`, // for completions and embeddings
	},
	Messages:  {"model": `"public"`, "max_tokens": `9`, "messages": `[{"role":"user","content":"u"}]`},
	Responses: {"model": `"public"`, "input": `[{"role":"user","content":"u"}]`},
}

// probes are values of each JSON type, which a field may have.
var probes = []string{`"x"`, `7`, `true`, `{"type":"x"}`, `["x"]`, `[{"type":"x"}]`}

// sample is a request with a part, and the same one without it.
type sample struct {
	with, without map[string]string
	alone         map[string]string // for a tool: with no other tool
	member        string            // that has the part
	named, path   string            // the part in an error or in Call.Dropped; an error may have the path alone
}

// with returns a copy of a request in which a member has a value, none for "".
func with(request map[string]string, name, value string) map[string]string {
	request = maps.Clone(request)
	delete(request, name)
	if value != "" {
		request[name] = value
	}
	return request
}

// functions are the tool that each request with tools has.
var functions = map[Dialect]string{
	Chat:      `{"type":"function","function":{"name":"f","parameters":{}}}`,
	Messages:  `{"name":"f","input_schema":{"type":"object"}}`,
	Responses: `{"type":"function","name":"f","parameters":{}}`,
}

// samplesOf returns the samples of a row, for a pattern those of each type that matches.
func samplesOf(row tableRow) (samples []sample) {
	base := baseRequests[row.dialect]
	if row.kind == "Field" {
		return fieldSamples(row, base)
	}
	base = with(base, "tools", "["+functions[row.dialect]+"]")
	for _, kind := range row.types() {
		role, element := elementOf(row, kind)
		switch row.kind {
		case "Tool":
			samples = append(samples, toolSample(base, element, kind, functions[row.dialect]))
		case "Block":
			samples = append(samples, blockSamples(base, element, kind, role)...)
		case "Item":
			samples = append(samples, itemSample(base, element, kind))
		case "Content":
			content := func(parts string) map[string]string {
				return with(base, "input", `[{"role":"user","content":[{"type":"input_text","text":"u"}`+parts+"]}]")
			}
			samples = append(samples, sample{
				with: content("," + element), without: content(""), member: "input", named: kind, path: "content[1]",
			})
		}
	}
	return samples
}

// types returns the types of elements for which a row holds.
func (r tableRow) types() (types []string) {
	if r.name == othersRow {
		return []string{"type_of_tomorrow"}
	}
	if !strings.Contains(r.plain(), "*") {
		return []string{r.plain()}
	}
	for _, list := range apiParts {
		for name := range strings.FieldsSeq(list.names) {
			if ok, err := path.Match(r.plain(), name); err == nil && ok && list.dialect == r.dialect && list.kind == r.kind {
				types = append(types, name)
			}
		}
	}
	return append(types, strings.ReplaceAll(r.plain(), "*", "new"))
}

// elementOf returns a sample of a type, and the role of its message if it needs one.
func elementOf(row tableRow, kind string) (role, element string) {
	inner, ok := elementMembers[row.dialect][kind]
	if !ok || strings.Contains(row.name, " with ") {
		inner = elementMembers[row.dialect][row.name]
	}
	if before, after, ok := strings.Cut(inner, ` "`); ok {
		role, inner = before, `"`+after
	}
	if inner == "" && row.kind == "Tool" {
		inner = `"name":"t"`
	}
	if inner != "" {
		inner = "," + inner
	}
	return role, `{"type":"` + kind + `"` + inner + "}"
}

// toolSample returns a sample of a tool.
func toolSample(base map[string]string, element, kind, function string) sample {
	return sample{
		with: with(base, "tools", "["+function+","+element+"]"), without: base,
		alone: with(base, "tools", "["+element+"]"), member: "tools", named: kind,
	}
}

// itemSample returns a sample of an item. Reasoning must precede the assistant's content, and a trigger must come last.
func itemSample(base map[string]string, element, kind string) sample {
	const user, assistant = `[{"role":"user","content":"u"}`, `,{"role":"assistant","content":"a"}`
	list := user + "," + element + assistant + "]"
	if kind == "compaction_trigger" {
		list = user + assistant + "," + element + "]"
	}
	return sample{
		with: with(base, "input", list), without: with(base, "input", user+assistant+"]"), member: "input", named: kind,
	}
}

// blockSamples returns the samples of a block, in messages of a role, or of users and assistants.
func blockSamples(base map[string]string, element, kind, role string) (samples []sample) {
	roles := []string{role}
	if role == "" {
		roles = []string{"user", "assistant"}
	}
	for _, role := range roles {
		messages := func(blocks string) map[string]string {
			return with(base, "messages", `[{"role":"user","content":"u"},{"role":"`+role+
				`","content":[{"type":"text","text":"a"}`+blocks+`]},{"role":"user","content":"v"}]`)
		}
		samples = append(samples, sample{
			with: messages("," + element), without: messages(""), member: "messages", named: kind, path: "content.1",
		})
	}
	return samples
}

// fieldSamples returns the samples of a field.
func fieldSamples(row tableRow, base map[string]string) (samples []sample) {
	if slices.Contains([]string{"tool_choice", "parallel_tool_calls"}, row.member()) {
		base = with(base, "tools", "["+functions[row.dialect]+"]")
	}
	values := probes
	if value, ok := fieldValues[row.dialect][row.name]; ok {
		values = []string{value}
	}
	names := []string{strings.ReplaceAll(row.member(), "*", "new")}
	if row.name == othersRow {
		names = append(strings.Fields(passedFields[row.dialect]), "field_of_tomorrow")
	}
	for _, member := range names {
		for _, value := range values {
			samples = append(samples, sample{
				with: with(base, member, value), without: base, member: member, named: strings.TrimSuffix(member, "new"),
			})
		}
	}
	return samples
}
