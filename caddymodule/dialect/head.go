package dialect

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
)

// Head is a request of which only that is read which does not depend on the model's deployment.
type Head struct {
	Model      string // the name that the client asked for
	References int    // how many there are to kept responses
	request    request
	env        *Env
}

// request is a call whose head was read.
type request interface {
	Call
	// name returns the model that the client asked for.
	name() string
	// references returns what the request refers to.
	references() []reference
	// decode implements Head.Decode.
	decode(env *Env) *Error
}

// byteOrderMark precedes the JSON of some editors and shells. A parser may ignore it
// (RFC 8259 §8.1).
var byteOrderMark = []byte("\ufeff")

// ReadHead scans the body of an operation that has one. The body and env belong to the request from now on.
func ReadHead(op Operation, body []byte, env *Env) (Head, *Error) {
	r, err := routes[op.Kind].readHead(op, bytes.TrimPrefix(body, byteOrderMark), env)
	if err != nil {
		return Head{}, err
	}
	return Head{r.name(), len(r.references()), r, env}, nil
}

// Decode reads the rest of the request, for a deployment with these options. The references were looked for.
func (h *Head) Decode(o compat.Options) (Call, *Error) {
	h.env.Options = o
	if err := h.request.decode(h.env); err != nil {
		return nil, err
	}
	return h.request, nil
}

// reference is a kept response to which a request refers, or an item of one.
type reference struct {
	id       string
	response bool
	items    [][]byte // once it is found
}

// Find looks for what a reference of the request stands for, and returns the size in bytes. If found is false, Decode
// fails because of this reference. Missing reasoning counts as found: the conversation is valid without it.
func (h *Head) Find(i int) (size int64, found bool) {
	r, view := &h.request.references()[i], h.env.Kept
	if r.response {
		response, ok := view.Response(r.id)
		if !ok {
			return 0, false
		}
		r.items = append(append(make([][]byte, 0, len(response.Input)+len(response.Output)), response.Input...),
			response.Output...)
	} else if raw, ok := view.Item(r.id); ok {
		r.items = [][]byte{raw}
	} else {
		return 0, r.optional()
	}
	for _, item := range r.items {
		size += int64(len(item))
	}
	return size, true
}

// optional reports whether the request can be decoded without what it refers to: reasoning.
func (r *reference) optional() bool { return !r.response && strings.HasPrefix(r.id, "rs_") }

// readChatHead reads the body of an operation of the chat dialect.
func readChatHead(op Operation, body []byte, env *Env) (request, *Error) {
	return scanRequest(op, body, env.DefaultModel)
}

func (r *ChatRequest) name() string          { return r.Model }
func (*ChatRequest) references() []reference { return nil }

func (r *ChatRequest) decode(env *Env) *Error {
	r.Info = env.Info
	err := cmp.Or(r.applyOptions(env.Options), r.readParameters(env.Options))
	if err == nil && r.kind == ChatCompletions {
		r.prompt = tokens.NewPrompt(r.promptText)
	}
	return err
}
