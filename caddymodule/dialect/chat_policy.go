package dialect

import (
	"bytes"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// marks are what the keys inside of a body's values reveal of it, noted while the
// body is scanned anyway: most bodies have none, and are not read again.
type marks = uint8

const (
	markMedia     marks = 1 << iota // a key with what may be the address of an image, a file …
	markDeveloper                   // a role developer
	markCalls                       // a key that leads to tool calls
)

// markOf is the mark of a key; rest begins with its value.
func markOf(key, rest []byte) marks {
	switch string(key) {
	case "role":
		if bytes.HasPrefix(rest, []byte(roleDeveloper)) {
			return markDeveloper
		}
		return 0
	case "content", "type", "text", "name":
		return 0
	case "tool_calls", "function_call":
		return markCalls
	}
	const shortest = len(`\u0075rl`)
	if mayHoldAddress(key, rest) || len(key) >= shortest && bytes.IndexByte(key, '\\') >= 0 {
		return markMedia
	}
	return 0
}

// unusual are what a deployment's options decide about.
type unusual struct {
	models    string        // a field that names further models, "" if there is none
	media     []place       // what may hold addresses of media
	developer jsonscan.Span // of the messages, if one of them is the developer's
	folds     edits         // of the developer's messages
}

// makeUnusual makes room for what few requests have.
func (r *ChatRequest) makeUnusual() *unusual {
	if r.unusual == nil {
		r.unusual = new(unusual)
	}
	return r.unusual
}

// folds are the edits of the developer's messages.
func (r *ChatRequest) folds() edits {
	if r.unusual == nil {
		return nil
	}
	return r.unusual.folds
}

// noteSeen notes what the keys in a member reveal.
func (r *ChatRequest) noteSeen(m *jsonscan.Members) {
	name := m.Name()
	if m.Seen&markMedia != 0 && (isLike(name, "messages") || isLike(name, "input")) {
		s := r.makeUnusual()
		s.media = append(s.media, place{m.Key, m.Value})
	}
	if m.Seen&markDeveloper != 0 && r.kind == ChatCompletions && string(name) == "messages" {
		r.makeUnusual().developer = m.Value
	}
}

// noteModels notes a field by which routers such as LiteLLM, OpenRouter and LM
// Studio take other models than model says, which the key's scope was not
// checked for. JSON readers differ in whether the case of keys counts.
func (r *ChatRequest) noteModels(key, value []byte) {
	name := ""
	switch key[0] | 0x20 {
	case 'm':
		name = "models"
	case 'f':
		name = "fallbacks"
	case 'r':
		name = "route"
	case 'd':
		name = "draft_model"
	default:
		return
	}
	if isLike(key, name) && !jsonscan.IsNull(value) {
		r.makeUnusual().models = name
	}
}

// applyOptions has the request treated as the deployment's model server needs it, and
// refuses what its options do not allow.
func (r *ChatRequest) applyOptions(o compat.Options) *Error {
	r.repairIndex = o.RepairToolIndex
	s := r.unusual
	if s == nil {
		return nil
	}
	if s.models != "" && !o.ExtraModels {
		return invalid(s.models, "unsupported_parameter",
			"Unsupported parameter: %s. A request goes to the one model that `model` names; leave the parameter out.", s.models)
	}
	if o.RemoteMedia != compat.RemoteAllow {
		for _, at := range s.media {
			if err := r.checkMedia(at, o.RemoteMedia); err != nil {
				return err
			}
		}
	}
	if s.developer.End != 0 && o.DeveloperRole != compat.DeveloperKeep {
		var err *Error
		if s.folds, err = foldDeveloper(r.body, s.developer.Start, o.InlineSystem == compat.InlineKeep); err != nil {
			return err
		}
	}
	return nil
}

// checkMedia checks the addresses in a member that holds messages, or an
// embedding's input.
func (r *ChatRequest) checkMedia(at place, policy string) *Error {
	path, problem := mediaFault(at.value.Of(r.body), inMessage, policy)
	if problem == "" {
		return nil
	}
	path = jsonscan.Unquote(at.key.Of(r.body)) + path
	return invalid(path, "", "Invalid value for %s: %s", path, problem)
}
