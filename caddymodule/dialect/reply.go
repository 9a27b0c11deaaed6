package dialect

import "github.com/postern-dev/postern/caddymodule/compat"

// reply is what the encoder of an answer must know of its request, and where
// it gets the time and ids from.
type reply struct {
	env       *Env
	dialect   Dialect
	model     string              // the public name
	names     map[string]ToolName // by the name that the upstream knows
	estimator func() int          // tokens of the prompt; nil: no estimate
	estimated int                 // what estimator returned
	options   compat.Options      // of the deployment

	omitThinking bool // thinking blocks of the messages dialect are to be empty
	responseOptions
}

// responseOptions are those of the responses dialect alone.
type responseOptions struct {
	encrypted bool              // reasoning is to be sent in encrypted form too
	logprobs  bool              // probabilities of the text are to be sent
	echo      map[string][]byte // members of the response object as the client sent them, as JSON of one line
	compact   bool              // the answer is to be a compaction

	// keep keeps a response with its output items; nil if it is not to be kept.
	// The bytes are valid during the call only.
	keep func(id string, body []byte, items [][]byte)
}

// encoder returns the encoder of the answer: as a stream, or, if it is quiet, whole.
func (r *reply) encoder(quiet bool) encoder {
	switch {
	case r.dialect == Messages:
		return &messagesEncoder{call: r, quiet: quiet, sign: newSigner(r)}
	case r.compact:
		return &compactionEncoder{responsesEncoder: newResponsesEncoder(r, quiet)}
	}
	e := newResponsesEncoder(r, quiet)
	return &e
}

// Answer implements Call.
func (r *reply) Answer(body []byte) ([]byte, Usage, *Error) { return encodeWhole(body, r) }

// NewStream implements Call.
func (r *reply) NewStream() Stream { return newAnswerStream(r, false) }

// ToolKind is how a tool of the client's, which is a function for the
// upstream, is called on the way back.
type ToolKind uint8

// The kinds of tools. All but the first are of the responses dialect.
const (
	ToolFunction   ToolKind = iota // with a JSON object of arguments
	ToolCustom                     // with free text
	ToolLocalShell                 // a command for the client's shell
	ToolShell                      // several of them
	ToolApplyPatch                 // a change of a file
)

// ToolName is how a client calls a tool.
type ToolName struct {
	Kind      ToolKind
	Name      string
	Namespace string // "" for none

	offered bool // it is among the tools of the request
}

// tool is the client's name of a tool; one that the model made up keeps its
// name, so that the client can report that it does not know it.
func (r *reply) tool(name string) ToolName {
	if t, ok := r.names[name]; ok {
		return t
	}
	return ToolName{Name: name}
}

// estimate is how many tokens the prompt may have; it is computed once.
func (r *reply) estimate() int {
	if r.estimator != nil {
		r.estimated, r.estimator = r.estimator(), nil
	}
	return r.estimated
}

// callID is the client's id of a tool call: the upstream's if it has one and
// the dialect allows it.
func (r *reply) callID(id, prefix string) string {
	switch {
	case id == "":
		return r.env.NewID(prefix)
	case r.dialect == Messages:
		return messagesID(id)
	}
	return responsesID(id)
}

// noteEcho notes what a member of the response object is to repeat. It goes into
// the lines of events, so it must not have line breaks of its own.
func (r *reply) noteEcho(name string, raw []byte) {
	if raw != nil {
		r.echo[name] = oneLine(raw)
	}
}

// appendEcho appends a member of the response object: what the client sent,
// or what holds if it sent nothing.
func (r *reply) appendEcho(b []byte, name, fallback string) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	if raw := r.echo[name]; len(raw) > 0 {
		return append(b, raw...)
	}
	return append(b, fallback...)
}
