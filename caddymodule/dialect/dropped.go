package dialect

import "fmt"

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
	if d.omitted > 0 || len(d.text)+len(path) > maxDropped-len(", and 100000 more") {
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

// Dropped implements Call.
func (t *translation) Dropped() string { return t.droppedParts.String() }

// Dropped implements Call: model servers get all fields of chat requests.
func (r *ChatRequest) Dropped() string { return "" }
