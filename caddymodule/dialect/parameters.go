package dialect

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// reasoningEffort is the parameter with the client's effort.
const reasoningEffort = "reasoning_effort"

// maxMerged is the number of levels in which objects merge: each one scans the client's object again.
const maxMerged = 16

// hasParameters reports whether a deployment has parameters for chat requests.
func hasParameters(o compat.Options) bool {
	return o.Defaults != "" || o.Force != "" || o.Efforts != ""
}

// mappedEffort returns the parameters in the option efforts for a client's effort, nil if there are none.
func mappedEffort(o compat.Options, effort string) []byte {
	switch value := jsonscan.Member([]byte(o.Efforts), effort); {
	case value == nil:
		return nil
	case jsonscan.IsString(value):
		return jsonscan.Appendf(nil, `{%q:%s}`, reasoningEffort, value)
	default: // in place of the effort
		return overlaid(jsonscan.Appendf(nil, `{%q:null}`, reasoningEffort), value, 0)
	}
}

// isLimit reports whether a parameter limits an answer.
func isLimit(name string) bool { return slices.Contains(fieldNames[fieldMaxTokens:], name) }

// optionLimit returns the limit of an answer in an option, 0 if there is none.
func optionLimit(o compat.Object) (limit int64) {
	for m := jsonscan.Checked([]byte(o)); m.Next(); {
		if n, _ := jsonscan.Integer(m.Raw()); isLimit(string(m.Name())) {
			limit = Lowest(limit, n)
		}
	}
	return limit
}

// readParameters reads the limit of an answer, and merges the other parameters of the deployment with the
// body.
func (r *ChatRequest) readParameters(o compat.Options) *Error {
	if r.kind != ChatCompletions || !hasParameters(o) {
		return nil
	}
	limit := optionLimit(o.Force)
	r.forced = limit > 0
	isGiven := r.forced
	for f := fieldMaxTokens; f < fieldCount; f++ {
		isGiven = isGiven || r.raw(f) != nil
	}
	if !isGiven {
		limit = optionLimit(o.Defaults)
	}
	r.LimitOutput(limit * r.answers)
	force := overlaid(mappedEffort(o, jsonscan.String(r.effort.Bytes(r.body))), []byte(o.Force), 0)
	return r.parameters.merge(r.body, bytes.IndexByte(r.body, '{'), []byte(o.Defaults), force, 0)
}

// mergeParameters merges the members of a translated request with the parameters of the deployment. The object
// has no closing brace.
func (t *translation) mergeParameters(head []byte) []byte {
	head = append(head, '}')
	var e edits
	_ = e.merge(head, 0, []byte(t.env.Options.Defaults), overlaid(t.effortParameters, []byte(t.env.Options.Force), 0), 0)
	merged := e.appendTo(nil, head)
	return merged[:len(merged)-1]
}

// effortLevel maps a client's reasoning effort to the levels that model servers support.
func effortLevel(effort string) string {
	switch effort {
	case "minimal":
		return "low"
	case "xhigh", "max":
		return "high"
	}
	return effort
}

// parameter is a member of options.
type parameter struct {
	name   string
	values [2][]byte     // the default, and what replaces the client's; nil: absent
	at     jsonscan.Span // of the client's value; zero: absent
}

// parameterList returns the members of two objects, in order and by folded name. Some JSON parsers ignore the
// case of names. Limits of an answer are not parameters.
func parameterList(defaults, force []byte, level int) (list []*parameter, byName map[string]*parameter) {
	byName = make(map[string]*parameter)
	for i, object := range [][]byte{defaults, force} {
		for m := jsonscan.Object(object); m.Next(); {
			if level == 0 && isLimit(string(m.Name())) {
				continue
			}
			name := folded(m.Name())
			p := byName[string(name)]
			if p == nil {
				p = &parameter{name: string(m.Name())}
				byName[string(name)] = p
				list = append(list, p)
			}
			p.values[i] = m.Raw()
		}
	}
	return list, byName
}

// folded returns a form that names have in common if they differ only in case.
func folded(name []byte) []byte { return bytes.ToLower(bytes.ToUpper(name)) }

// merge adds the edits that merge the client's object at data[start] with the objects defaults and force. Like
// the fields that the gateway uses, the client must send their members once and in the same spelling.
func (e *edits) merge(data []byte, start int, defaults, force []byte, level int) (err *Error) {
	list, byName := parameterList(defaults, force, level)
	m := jsonscan.CheckedAt(data, start)
	for m.Next() {
		p := byName[string(folded(m.Name()))]
		if p == nil {
			continue
		}
		if err = cmp.Or(err, checkKey(&m, p.name, member{value: p.at}, p.name)); p.at.End != 0 {
			continue // an error, which ends the request
		}
		p.at = m.Value
		client, byDefault, forced := m.Raw(), p.values[0], p.values[1]
		switch {
		case jsonscan.IsNull(client):
			e.add(p.at.Start, p.at.End, overlaid(byDefault, forced, level+1))
		case level < maxMerged && jsonscan.IsObject(client) && (forced == nil || jsonscan.IsObject(forced)):
			err = cmp.Or(err, e.merge(data, p.at.Start, byDefault, forced, level+1))
		case forced != nil:
			e.add(p.at.Start, p.at.End, forced)
		}
	}
	var added []byte
	for _, p := range list {
		if p.at.End == 0 {
			added = jsonscan.Appendf(added, `%q:%s,`, p.name, overlaid(p.values[0], p.values[1], level+1))
		}
	}
	if m.Index < 0 { // an empty object
		added = bytes.TrimSuffix(added, []byte{','})
	}
	e.add(start+1, start+1, added)
	return err
}

// overlaid returns force, merged with defaults if both are objects. nil is absent.
func overlaid(defaults, force []byte, level int) []byte {
	switch {
	case len(force) == 0:
		return defaults
	case !jsonscan.IsObject(defaults) || !jsonscan.IsObject(force):
		return force
	}
	var e edits
	_ = e.merge(defaults, 0, nil, force, level) // an operator may spell names differently
	return e.appendTo(nil, defaults)
}
