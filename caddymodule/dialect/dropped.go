package dialect

import (
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// maxDropped is the maximum length of the list of dropped parts, in bytes.
const maxDropped = 1 << 10

// drop lists a member of the current object, or the object if name is "", as not sent to the model although it carries
// meaning: "tools.2 (web_search)". kind is its type, "" if the path says enough. A type is listed once, where it
// comes first, because clients repeat their histories. The list is safe for a header.
func (t *translation) drop(name, kind string) {
	const more = ", and more"
	if kind != "" {
		kind = " (" + plainName(kind) + ")"
	}
	if kind != "" && strings.Contains(t.dropped, kind) || strings.HasSuffix(t.dropped, more) {
		return
	}
	part := t.fieldPath(name) + kind
	if t.dropped != "" {
		part = ", " + part
	}
	if len(t.dropped)+len(part) > maxDropped-len(more) {
		part = more
	}
	t.dropped += part
}

// dropEdits lists the context edits. Those that clear thinking only save tokens, so they are not listed.
func (t *translation) dropEdits(path string, list []byte) {
	for m := jsonscan.Checked(list); m.Next(); {
		if kind := jsonscan.Text(m.Raw(), "type"); kind != "" && !strings.HasPrefix(kind, "clear_thinking_") {
			t.drop(t.dialect.format().element(path, m.Index), kind)
		}
	}
}

// Dropped implements Call.
func (t *translation) Dropped() string { return t.dropped }

// Dropped implements Call: model servers get all fields of chat requests.
func (r *ChatRequest) Dropped() string { return "" }
