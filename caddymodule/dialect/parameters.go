package dialect

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// The sources of a request's parameters. Later ones take precedence.
const (
	ofDefaults = iota // an option
	ofClient
	ofEffort // the object that the option efforts has for the client's effort
	ofForce  // an option
	sourceCount
)

// reasoningEffort is the parameter in whose place the object of an effort is sent.
const reasoningEffort = "reasoning_effort"

// sources are the JSON values of a parameter by source, nil where it is absent.
type sources [sourceCount][]byte

// parameter is a member of an option.
type parameter struct {
	name   string
	values sources
	at     jsonscan.Span // of the client's value; zero: absent
	whole  jsonscan.Span // of the client's member with a comma
	mapped bool          // sent is the client's value, whatever it has sent
	sent   []byte
}

// parameters are the members of options, in order and by name. Some JSON parsers ignore the case of names.
type parameters struct {
	list   []*parameter
	byName map[string]*parameter // by compat.FoldName
}

// hasParameters reports whether a deployment has parameters for chat requests.
func hasParameters(o compat.Options) bool {
	return o.Defaults != "" || o.Force != "" || o.Efforts != ""
}

// mappedEffort returns what the option efforts has for a client's effort: a name or an object, both as JSON.
func mappedEffort(o compat.Options, effort string) (name, object []byte) {
	value := jsonscan.Member([]byte(o.Efforts), effort)
	if jsonscan.IsString(value) {
		return value, nil
	}
	return nil, value
}

// isLimit reports whether a parameter limits an answer.
func isLimit(name string) bool { return slices.Contains(fieldNames[fieldMaxTokens:], name) }

// optionLimit returns the limit of an answer in an option, 0 if there is none.
func optionLimit(o compat.Object) (limit int64) {
	if o != "" {
		for m := jsonscan.Checked([]byte(o)); m.Next(); {
			if isLimit(string(m.Name())) {
				limit, _ = jsonscan.Integer(m.Raw())
			}
		}
	}
	return limit
}

// optionParameters returns a deployment's parameters but the limits of an answer. effort is the object
// that is sent in place of the client's effort, or nil.
func optionParameters(o compat.Options, effort []byte) (p parameters) {
	p.read([]byte(o.Defaults), ofDefaults, func(name string) bool {
		return isLimit(name) || effort != nil && name == reasoningEffort
	})
	p.read(effort, ofEffort, nil)
	p.read([]byte(o.Force), ofForce, isLimit)
	return p
}

// read reads an object of an option. skips may be nil.
func (p *parameters) read(object []byte, source int, skips func(name string) bool) {
	if len(object) == 0 {
		return
	}
	for m := jsonscan.Checked(object); m.Next(); {
		if name := string(m.Name()); skips == nil || !skips(name) {
			p.named(name).values[source] = m.Raw()
		}
	}
}

// named returns the parameter with this name, which it adds if it is missing.
func (p *parameters) named(name string) *parameter {
	key := compat.FoldName(name)
	q := p.byName[key]
	if q == nil {
		if p.byName == nil {
			p.byName = make(map[string]*parameter)
		}
		q = &parameter{name: name}
		p.byName[key] = q
		p.list = append(p.list, q)
	}
	return q
}

// settle returns the value of a parameter, nil if it has none. Of several values, the last one counts, but
// objects merge, in any depth: then merges is true. A default replaces null of the client.
func (v *sources) settle() (value []byte, merges bool) {
	if v[ofDefaults] != nil && jsonscan.IsNull(v[ofClient]) {
		v[ofClient] = nil
	}
	for i := len(v) - 1; i >= 0; i-- {
		switch {
		case v[i] == nil:
		case value == nil && v[i][0] != '{':
			return v[i], false
		case v[i][0] != '{':
			clear(v[:i+1])
		default:
			merges = value != nil
			value = v[i]
		}
	}
	return value, merges
}

// except returns the members of the objects of all sources but one.
func (v sources) except(source int) (p parameters) {
	v[source] = nil
	for i, object := range v {
		p.read(object, i, nil)
	}
	return p
}

// joined merges the objects of options.
func (v sources) joined() []byte {
	lowest := slices.IndexFunc(v[:], func(object []byte) bool { return object != nil })
	var e edits
	_ = v.except(lowest).merge(&e, v[lowest], 0, "") // an operator may repeat names
	return e.appendTo(nil, v[lowest])
}

// merge adds the edits that merge the client's object at data[start] with the parameters. Like the fields that
// the gateway uses, the client must send them once and in this spelling, else the error is not nil.
func (p parameters) merge(e *edits, data []byte, start int, path string) *Error {
	filled, err := p.find(data, start, path)
	var added []byte
	for _, q := range p.list {
		value, merges := q.values.settle()
		if merges && q.values[ofClient] != nil {
			err = cmp.Or(err, q.values.except(ofClient).merge(e, data, q.at.Start, dotted(path, q.name)))
			continue
		}
		if merges {
			value = q.values.joined()
		}
		switch {
		case value == nil:
			e.add(q.whole.Start, q.whole.End, nil)
		case q.at.End != 0:
			e.add(q.at.Start, q.at.End, value)
		default:
			added = append(append(jsonscan.AppendQuoted(added, q.name), ':'), value...)
			added = append(added, ',')
		}
	}
	if !filled {
		added = bytes.TrimSuffix(added, []byte{','})
	}
	e.add(start+1, start+1, added)
	return err
}

// find finds the parameters in the object at data[start], and reports whether it has members.
func (p parameters) find(data []byte, start int, path string) (filled bool, err *Error) {
	before := 0 // index of the comma before the member
	for m := jsonscan.CheckedAt(data, start); m.Next(); before = m.Sep {
		filled = true
		q := p.byName[compat.FoldName(string(m.Name()))]
		if q == nil {
			continue
		}
		err = cmp.Or(err, checkKey(&m, q.name, member{value: q.at}, dotted(path, q.name)))
		q.at, q.values[ofClient] = m.Value, m.Raw()
		if q.mapped {
			q.values[ofClient] = q.sent
		}
		if q.whole = (jsonscan.Span{Start: before, End: m.Value.End}); m.More() {
			q.whole = jsonscan.Span{Start: m.Key.Start, End: m.Sep + 1}
		}
	}
	return filled, err
}

// limitOf returns the limit of an answer. client is the client's limit, or 0.
func limitOf(o compat.Options, client int64) int64 {
	return cmp.Or(optionLimit(o.Force), client, optionLimit(o.Defaults))
}

// readParameters reads the limit of an answer, and merges the other parameters of the deployment with the
// body.
func (r *ChatRequest) readParameters(o compat.Options) *Error {
	if r.kind != ChatCompletions || !hasParameters(o) {
		return nil
	}
	client := int64(0)
	for f := fieldMaxTokens; f < fieldCount; f++ {
		if r.raw(f) != nil {
			client = -1
		}
	}
	r.limit = max(limitOf(o, client), 0)
	name, object := mappedEffort(o, jsonscan.String(r.effort.Bytes(r.body)))
	p := optionParameters(o, object)
	if name != nil || object != nil {
		q := p.named(reasoningEffort)
		q.mapped, q.sent = true, name
	}
	if len(p.list) == 0 {
		return nil
	}
	return p.merge(&r.parameters, r.body, bytes.IndexByte(r.body, '{'), "")
}

// mergeParameters merges the members of a translated request with the parameters of the deployment. The object
// has no closing brace.
func (t *translation) mergeParameters(head []byte) []byte {
	if t.toolList != nil && t.parallel != "" {
		head = jsonscan.Appendf(head, `,"parallel_tool_calls":%s`, t.parallel)
	}
	head = append(head, '}')
	var e edits
	_ = optionParameters(t.options, t.effortObject).merge(&e, head, 0, "") // most names are those of the gateway
	merged := e.appendTo(nil, head)
	return merged[:len(merged)-1]
}
