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

// noteSeen notes what the keys in a member reveal.
func (r *ChatRequest) noteSeen(m *jsonscan.Members) {
	name := m.Name()
	if m.Seen&markMedia != 0 && (isLike(name, "messages") || isLike(name, "input")) {
		r.media = append(r.media, place{m.Key, m.Value})
	}
	if m.Seen&markDeveloper != 0 && r.kind == ChatCompletions && string(name) == "messages" {
		r.developer = m.Value
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
		r.models = name
	}
}

// applyOptions has the request treated as the deployment's model server needs it, and
// refuses what its options do not allow.
func (r *ChatRequest) applyOptions(o compat.Options) *Error {
	r.repairIndex = o.RepairToolIndex
	if r.models != "" && !o.ExtraModels {
		return invalid(r.models, "unsupported_parameter",
			"Unsupported parameter: %s. Only the model in `model` is used. Omit the parameter.", r.models)
	}
	if o.RemoteMedia != compat.RemoteAllow {
		for _, at := range r.media {
			if err := r.checkMedia(at, o.RemoteMedia); err != nil {
				return err
			}
		}
	}
	if r.developer.End == 0 || o.DeveloperRole == compat.DeveloperKeep {
		return nil
	}
	var err *Error
	r.folds, err = foldDeveloper(r.body, r.developer.Start, o.InlineSystem == compat.InlineKeep)
	return err
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
