package dialect

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
)

// Head is a request before the parts are read that depend on the options of the model's deployment.
type Head struct {
	Model      string      // the name that the client asked for
	References []Reference // to kept responses, in the order of the request
	request    interface {
		Call
		decode(o compat.Options) *Error
	}
}

// byteOrderMark precedes the JSON of some editors and shells. A parser may ignore it
// (RFC 8259 §8.1).
var byteOrderMark = []byte("\ufeff")

// ReadHead scans the body of an operation that has one. The body belongs to the request from now on.
func ReadHead(op Operation, body []byte, env *Env) (Head, *Error) {
	return routes[op.Kind].readHead(op, bytes.TrimPrefix(body, byteOrderMark), env)
}

// Decode reads the rest of the request, for a deployment with these options. Call [Reference.Find] before.
func (h *Head) Decode(o compat.Options) (Call, *Error) {
	if err := h.request.decode(o); err != nil {
		return nil, err
	}
	return h.request, nil
}

// Reference is a kept response to which a request refers, or an item of one.
type Reference struct {
	id       string
	response bool
	items    [][]byte // once it is found
}

// Find looks for what the reference stands for, and returns the size in bytes. If found is false, [Head.Decode] fails
// because of this reference. Missing reasoning counts as found: the conversation is valid without it.
func (r *Reference) Find(view kept.View) (size int64, found bool) {
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
func (r *Reference) optional() bool { return !r.response && strings.HasPrefix(r.id, "rs_") }

// readChatHead reads the body of an operation of the chat dialect.
func readChatHead(op Operation, body []byte, env *Env) (Head, *Error) {
	r, err := scanRequest(op, body, env.DefaultModel)
	if err != nil {
		return Head{}, err
	}
	r.Info = env.Info
	return Head{Model: r.Model, request: r}, nil
}

func (r *ChatRequest) decode(o compat.Options) *Error {
	err := cmp.Or(r.applyOptions(o), r.readParameters(o))
	if err == nil && r.kind == ChatCompletions {
		r.prompt = tokens.NewPrompt(r.promptText)
	}
	return err
}
