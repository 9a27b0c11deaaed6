package dialect

import (
	"bytes"
	"cmp"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
)

// field is a key of a request body that the gateway uses.
type field uint8

const (
	fieldModel field = iota
	fieldStream
	fieldStreamOptions
	fieldMaxTokens // the first of those by which model servers limit an answer
	fieldMaxCompletionTokens
	fieldNPredict // llama.cpp prefers it to max_tokens
	fieldMaxNewTokens
	fieldCount
)

// fieldNames are the keys of the fields, fieldTypes their types.
var (
	fieldNames = [fieldCount]string{
		"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n_predict", "max_new_tokens",
	}
	fieldTypes = [fieldCount]valueType{aString, aBool, anObject, aNumber, aNumber, aNumber, aNumber}
)

// answerNames are the fields that multiply answers. llama.cpp prefers n_cmpl to n, others ignore it.
// Of the answers of best_of, the client gets some.
var answerNames = [...]string{"n", "n_cmpl", "best_of"}

const includeUsage = "include_usage" // the key of stream_options that the gateway uses

// member is the position of a member in the body. The zero member is absent.
type member struct{ key, value jsonscan.Span }

// found reports whether the member is present.
func (p member) found() bool { return p.value.End != 0 }

// ChatRequest is a scanned request in the chat dialect: the values that the gateway
// uses, and the positions of those that it changes. It retains the body, which must
// not be modified.
type ChatRequest struct {
	ChatStreamOptions
	Stream bool // the client wants an event stream

	body             []byte
	kind             OperationKind
	fields           [fieldCount]member
	usageOption      member        // of stream_options.include_usage
	hasStreamOptions bool          // stream_options has members
	content          jsonscan.Span // of the operation's main field
	tools            jsonscan.Span

	cacheKey jsonscan.Span // of prompt_cache_key
	effort   jsonscan.Span // of reasoning_effort

	answers int64 // number of answers to all prompts
	output  int64 // limit of the tokens of all answers together; 0: only the client's limits
	forced  bool  // output is in place of the client's limits
	room    int64 // a lower limit of each answer, so that it fits into the window; 0: none

	routing string // of routingNames, or ""

	// Subject to the deployment's options. Few requests have these.
	media      []member      // members that may contain addresses of media
	remote     string        // path of a field with the address of media, in a media operation
	developer  jsonscan.Span // of the messages, if one has the role developer
	folds      edits         // of the developer messages
	parameters edits         // of parameters of the deployment

	prompt *tokens.Prompt // of ChatCompletions
}

// scanRequest reads a JSON body of an operation of the chat dialect in one
// pass, and decodes only keys and the model's name. It checks the JSON grammar. It
// rejects duplicates and other spellings of the keys that the gateway uses, because
// the upstream's parser might pick one that was not checked here. Everything else,
// including invalid UTF-8, is left to the upstream. A body that names no model is for
// defaultModel.
func scanRequest(op Operation, body []byte, defaultModel string) (*ChatRequest, *Error) {
	r := &ChatRequest{body: body, kind: op.Kind, answers: 1, ChatStreamOptions: ChatStreamOptions{Choices: 1}}
	m := jsonscan.Object(body)
	if m.Err() != nil {
		return nil, notAnObject(body)
	}
	unknown := false // the number of choices
	for m.Mark = markOf; m.Next(); m.Seen = 0 {
		if err := r.note(&m); err != nil {
			return nil, err
		}
		switch string(m.Name()) {
		case contentField(op.Kind):
			r.content = m.Value
		case "tools":
			r.tools = m.Value
		case "prompt_cache_key":
			if jsonscan.IsString(m.Raw()) {
				r.cacheKey = m.Value
			}
		case reasoningEffort:
			r.effort = m.Value
		case "n":
			r.Choices = r.noteAnswers(m.Raw())
		case "n_cmpl":
			r.noteAnswers(m.Raw())
			unknown = true
		case "best_of":
			r.noteAnswers(m.Raw())
		}
		if m.Seen != 0 || isMedia(op.Kind) && isMediaField(m.Name()) {
			r.noteMarks(&m)
		}
	}
	if !m.Whole() {
		return nil, notJSON(m.Err())
	}
	if unknown {
		r.Choices = 0
	}
	for f, want := range fieldTypes {
		if raw := r.raw(field(f)); raw != nil && !want.is(raw) {
			return nil, wrongType(fieldNames[f], want.name, raw)
		}
	}
	if err := r.readModel(defaultModel); err != nil {
		return nil, err
	}
	r.Stream = string(r.raw(fieldStream)) == "true"
	if err := r.checkStreamOptions(); err != nil {
		return nil, err
	}
	if err := r.checkContent(); err != nil {
		return nil, err
	}
	return r, nil
}

// readModel reads the model of the scanned body.
func (r *ChatRequest) readModel(defaultModel string) *Error {
	r.Model = cmp.Or(jsonscan.String(r.raw(fieldModel)), defaultModel)
	start := bytes.IndexByte(r.body, '{')
	switch model := &r.fields[fieldModel]; {
	case r.Model == "", !model.found() && !jsonscan.IsFilled(r.body[start:]):
		return missing("model")
	case !model.found(): // Body inserts it
		at := jsonscan.Span{Start: start + 1, End: start + 1}
		*model = member{at, at}
	}
	return nil
}

// contentField returns the key of the operation's main field, "" if the model server alone checks that.
func contentField(kind OperationKind) string {
	switch kind {
	case ChatCompletions:
		return "messages"
	case Completions:
		return "prompt"
	case Embeddings, Speech:
		return "input"
	}
	return ""
}

// contentPaths are the paths of operations by their main field.
var contentPaths = map[string]string{
	"messages": "/v1/chat/completions", "prompt": "/v1/completions", "input": "/v1/responses",
}

// missingContent returns the error for a body without the operation's main field. The field of
// another operation shows which path the client means.
func (r *ChatRequest) missingContent() *Error {
	e := missing(contentField(r.kind))
	for m := jsonscan.Object(r.body); m.Next(); {
		if path := contentPaths[string(m.Name())]; path != "" {
			e.Message += " For a request with `" + string(m.Name()) + "`, use POST " + path + "."
			break
		}
	}
	return e
}

// checkContent rejects a body without the operation's main field. Some upstreams would
// answer with a misleading status 500.
func (r *ChatRequest) checkContent() *Error {
	raw := r.content.Bytes(r.body)
	switch {
	case r.kind == Completions:
		if !jsonscan.IsString(raw) { // several prompts have several choices each
			r.Choices = 0
			r.answers = min(r.answers*prompts(raw), maxAnswers)
		}
	case len(raw) == 0 && contentField(r.kind) != "":
		return r.missingContent()
	case r.kind == ChatCompletions && !jsonscan.IsArray(raw):
		return wrongType(contentField(r.kind), "an array", raw)
	}
	return nil
}

// maxAnswers limits the answers that are counted.
const maxAnswers = 1 << 20

// noteAnswers reads how many answers to a prompt the client wants. Some servers take 2.0 and "2", too.
func (r *ChatRequest) noteAnswers(raw []byte) int {
	const maxWanted = 1<<16 - 1
	n, _ := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64) // infinite if it is out of range
	wanted := 1
	if n > 1 { // it may be NaN
		wanted = int(math.Ceil(min(n, maxWanted)))
	}
	r.answers = max(r.answers, int64(wanted))
	return wanted
}

// prompts counts the prompts of a completion: an array of numbers is one prompt in tokens.
func prompts(raw []byte) (n int64) {
	if !jsonscan.IsArray(raw) {
		return 1
	}
	for m := jsonscan.Checked(raw); m.Next(); {
		if !jsonscan.IsNumber(m.Raw()) {
			n++
		}
	}
	return max(n, 1)
}

// actsOn reports whether the gateway uses a field in this operation.
func (r *ChatRequest) actsOn(f field) bool {
	return r.generates() || f == fieldModel
}

// generates reports whether the operation generates text, so that its answers can be streamed and limited.
func (r *ChatRequest) generates() bool { return r.kind == ChatCompletions || r.kind == Completions }

// note records the position of a member that the gateway uses.
func (r *ChatRequest) note(m *jsonscan.Members) *Error {
	key := m.Name()
	if len(key) == 0 {
		return nil
	}
	r.noteRouting(key, m.Raw())
	switch first := key[0] | 0x20; {
	case first == 'b', first == 'n':
		for _, name := range answerNames {
			if r.generates() && isLike(key, name) {
				return checkKey(m, name, member{}, name)
			}
		}
	case first != 'm' && first != 's' && first < utf8.RuneSelf:
		return nil // no field starts with this letter
	}
	for f, name := range fieldNames {
		f := field(f)
		if !r.actsOn(f) || !isLike(key, name) {
			continue
		}
		if err := checkKey(m, name, r.fields[f], name); err != nil {
			return err
		}
		r.fields[f] = member{m.Key, m.Value}
	}
	return nil
}

// isLike reports whether a key equals name under case folding. encoding/json, for
// example, accepts "MODEL" and "ſtream".
func isLike(key []byte, name string) bool {
	return len(key) >= len(name) && bytes.EqualFold(key, []byte(name))
}

// checkKey rejects a key that differs from name in case, or is a duplicate.
func checkKey(m *jsonscan.Members, name string, before member, param string) *Error {
	if string(m.Name()) != name {
		return invalid(param, "unsupported_parameter", "Unknown parameter %q: did you mean %q?", show(string(m.Name())), name)
	}
	if before.found() {
		return invalid(param, "", "The key %q is duplicated in the request body. Send it once.", param)
	}
	return nil
}

// raw returns the value of a field, nil if it is absent or null.
func (r *ChatRequest) raw(f field) []byte {
	p := r.fields[f]
	if raw := p.value.Bytes(r.body); p.found() && !jsonscan.IsNull(raw) {
		return raw
	}
	return nil
}

// checkStreamOptions reads stream_options.
func (r *ChatRequest) checkStreamOptions() *Error {
	if r.raw(fieldStreamOptions) == nil {
		return nil
	}
	for m := jsonscan.MembersAt(r.body, r.fields[fieldStreamOptions].value.Start); m.Next(); {
		r.hasStreamOptions = true
		if !isLike(m.Name(), includeUsage) {
			continue
		}
		const param = "stream_options." + includeUsage
		if err := checkKey(&m, includeUsage, r.usageOption, param); err != nil {
			return err
		}
		if raw := m.Raw(); !jsonscan.IsBool(raw) && !jsonscan.IsNull(raw) {
			return wrongType(param, "a boolean", raw)
		}
		r.usageOption = member{m.Key, m.Value}
		r.IncludeUsage = m.Raw()[0] == 't'
	}
	return nil
}

// notJSON returns the error for a body that is not valid JSON.
func notJSON(err error) *Error {
	return invalid("", "", "The request body is not valid JSON: %v.", err)
}

// notAnObject returns the error for a body that is not a JSON object.
func notAnObject(body []byte) *Error {
	value, err := jsonscan.Value(body)
	switch {
	case err != nil:
		return notJSON(err)
	case len(value) == 0:
		return invalid("", "", "The request body is empty; send a JSON object.")
	}
	return invalid("", "invalid_type", "The request body must be a JSON object, not %s.", jsonscan.TypeName(value))
}
