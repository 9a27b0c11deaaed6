package dialect

import "time"

// reply is what the encoder of an answer must know of the request, and where
// it gets ids and the time from.
type reply struct {
	dialect      Dialect
	model        string // the public name
	omitThinking bool
	encrypted    bool // reasoning goes out encrypted too
	echo         map[string][]byte
	signatureKey []byte
	request      string
	names        map[string]ToolName
	estimator    func() int
	now          func() time.Time
	newID        func(prefix string) string
	idOK         func(id string) string
}

type ToolKind uint8

const (
	ToolFunction ToolKind = iota
	ToolCustom
	ToolLocalShell
	ToolShell
	ToolApplyPatch
)

type ToolName struct {
	Kind            ToolKind
	Name, Namespace string
}

func (r *reply) estimate() int {
	if r.estimator == nil {
		return 0
	}
	return r.estimator()
}

func (r *reply) requestID() string { return r.request }

// tool is how a tool of the upstream's is called by the client.
func (r *reply) tool(name string) ToolName {
	if t, ok := r.names[name]; ok {
		return t
	}
	return ToolName{Name: name}
}

func (r *reply) clientName(name string) string { return r.tool(name).Name }

func (r *reply) clientID(id, prefix string) string {
	if id == "" {
		return r.newID(prefix)
	}
	return r.idOK(id)
}

func (r *reply) appendEcho(b []byte, name, fallback string) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	if raw := r.echo[name]; len(raw) > 0 {
		return append(b, raw...)
	}
	return append(b, fallback...)
}
