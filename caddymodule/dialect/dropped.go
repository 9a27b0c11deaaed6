package dialect

import (
	"fmt"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// maxDropped is the maximum length of the text of droppedParts, in bytes.
const maxDropped = 1 << 10

// droppedParts lists the parts of a request that are not sent to the model although they carry meaning, as
// "tools.2 (web_search), thread". The text is safe for a header: paths consist of names that this package reads.
type droppedParts struct {
	text    string
	omitted int // parts that the text has no room for
}

// add adds a part with its path. kind is its type, or "" if the path says enough.
func (d *droppedParts) add(path, kind string) {
	if kind != "" {
		path += " (" + plainName(kind) + ")"
	}
	if d.text != "" {
		path = ", " + path
	}
	if d.omitted > 0 || len(d.text)+len(path) > maxDropped-len(", and 1000000000 more") {
		d.omitted++
		return
	}
	d.text += path
}

// String returns the list, "" if it is empty.
func (d *droppedParts) String() string {
	if d.omitted > 0 {
		return fmt.Sprintf("%s, and %d more", d.text, d.omitted)
	}
	return d.text
}

// drop notes that the current object, of this type, is not sent to the model.
func (t *translation) drop(kind string) { t.droppedParts.add(t.fieldPath(""), kind) }

// dropUnread notes a member of the request, unless it is read or means nothing to a model.
func (t *translation) dropUnread(m *jsonscan.Members) {
	name, format := m.Name(), t.dialect.format()
	is := func(known string) bool { return known == string(name) }
	if !jsonscan.IsNull(m.Raw()) && !slices.ContainsFunc(format.request, is) && !slices.ContainsFunc(format.ignored, is) {
		t.droppedParts.add(plainName(string(name)), "")
	}
}

// dropEdits notes the edits that shorten the conversation at the API. Those of thinking only save tokens.
func (t *translation) dropEdits(f fieldList, name string) {
	t.lenient = true // other values are ignored
	for list := t.objects(f, name); list.next(); {
		if kind := list.fields.text("type"); !strings.HasPrefix(kind, "clear_thinking_") {
			t.drop(kind)
		}
	}
	t.lenient = false
}

// Dropped implements Call.
func (t *translation) Dropped() string { return t.droppedParts.String() }

// Dropped implements Call: model servers get all fields of chat requests.
func (r *ChatRequest) Dropped() string { return "" }
