package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/tokens"

// reply holds the parts of a request that the encoder of its answer needs.
type reply struct {
	env     *Env
	dialect Dialect
	model   string              // the public name
	names   map[string]ToolName // by upstream name
	prompt  *tokens.Prompt      // for estimates
	output  int64               // max_tokens; 0: none
	room    int64               // a lower limit that the upstream gets, so that it fits into the window; 0: none

	safeguard    *Safeguard // nil without a check of tool calls
	omitThinking bool       // thinking blocks of the messages dialect are empty
	countThought bool       // streams of the messages dialect report about how many tokens were thought
	responseOptions
}

// responseOptions are the options of the responses dialect.
type responseOptions struct {
	encrypted bool              // send encrypted reasoning, too
	logprobs  bool              // send log probabilities of the text
	echo      map[string][]byte // members that the response object repeats, as single-line JSON
	compact   bool              // the answer is a compaction

	// keep keeps a response with its output items. The bytes are valid during the
	// call only. keep is nil if the response is not kept.
	keep func(id string, body []byte, items [][]byte)
}

// encoder returns the encoder of the answer. A quiet one encodes a whole answer.
func (r *reply) encoder(quiet bool) encoder { return r.dialect.format().encoder(r, quiet) }

// Answer implements Call.
func (r *reply) Answer(body []byte) ([]byte, Usage, *Error) { return encodeWhole(body, r) }

// NewStream implements Call.
func (r *reply) NewStream() Stream { return newAnswerStream(r, false) }

// ToolKind is the kind of a client's tool. For the upstream, every tool is a function.
type ToolKind uint8

// The kinds of tools. Only the responses dialect has the ones after ToolFunction.
const (
	ToolFunction   ToolKind = iota // with a JSON object of arguments
	ToolCustom                     // with free text
	ToolLocalShell                 // a command for the client's shell
	ToolShell                      // several shell commands
	ToolApplyPatch                 // a file change
)

// ToolName is a client's name of a tool.
type ToolName struct {
	Kind      ToolKind
	Name      string
	Namespace string // of the responses dialect, or a toolset of the messages dialect; may be ""

	offered bool // the request offers the tool
	end     int  // of its definition in toolset.json
}

// tool returns the client's name of a tool. A name that the model made up is unchanged,
// so that the client can reject it.
func (r *reply) tool(name string) ToolName {
	if t, ok := r.names[name]; ok {
		return t
	}
	return ToolName{Name: name}
}

// estimate returns the estimated tokens of the prompt, 0 without an estimate.
func (r *reply) estimate() int {
	if r.env.Estimate == nil {
		return 0
	}
	return r.env.Estimate(r.prompt)
}

// callID returns the client's id of a tool call: the upstream's if the dialect allows it,
// else a new one.
func (r *reply) callID(id, prefix string) string {
	if id == "" {
		return r.env.NewID(prefix)
	}
	return r.dialect.format().callID(id)
}

// noteEcho records a member that the response object repeats. Line breaks are removed,
// because it becomes part of event lines.
func (r *reply) noteEcho(name string, raw []byte) {
	if raw != nil {
		r.echo[name] = oneLine(raw)
	}
}

// appendEchoes appends members of the response object, as pairs of a name and a fallback:
// the client's value, or the fallback.
func (r *reply) appendEchoes(b []byte, pairs ...string) []byte {
	for i := 0; i < len(pairs); i += 2 {
		b = append(append(append(b, `,"`...), pairs[i]...), `":`...)
		if raw := r.echo[pairs[i]]; len(raw) > 0 {
			b = append(b, raw...)
		} else {
			b = append(b, pairs[i+1]...)
		}
	}
	return b
}
