package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/jsonscan"

const (
	// maxBeginning bounds the bytes of a first message that distinguish conversations.
	maxBeginning = 4 << 10
	// maxPrompt is the same for the prompt of a text completion, which later requests
	// continue. It must be short: all have to agree in it.
	maxPrompt = 256
)

// Conversation implements Call.
func (r *ChatRequest) Conversation() []byte {
	content := r.content.Bytes(r.body)
	switch {
	case r.cacheKey != (jsonscan.Span{}):
		return r.cacheKey.Bytes(r.body)
	case r.kind == ChatCompletions:
		return beginning(content)
	case r.kind == Completions:
		return content[:min(len(content), maxPrompt)]
	}
	return nil
}

// Conversation implements Call.
func (t *translation) Conversation() []byte {
	if t.cacheKey != nil {
		return t.cacheKey
	}
	return beginning(t.messages)
}

// beginning returns the beginning of the first message that is not a system message. messages is
// valid JSON.
func beginning(messages []byte) []byte {
	if len(messages) == 0 {
		return nil
	}
	for m := jsonscan.Checked(messages); m.Next(); {
		switch raw := m.Raw(); jsonscan.Text(raw, "role") {
		case "system", "developer":
		default:
			return raw[:min(len(raw), maxBeginning)]
		}
	}
	return nil
}
