package dialect

import (
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// inputItem is an item of the input.
type inputItem struct {
	raw   []byte // an object
	index int    // in the request's input, or ofPrevious or ofText
}

// Where an item comes from that is no element of the request's input.
const (
	ofPrevious = -1 // previous_response_id
	ofText     = -2 // the input, which is a string
)

// What the paths of items begin with.
var (
	pathOfInput    = fieldPath{name: "input"}
	pathOfPrevious = fieldPath{name: "previous_response_id"}
)

// path is where the item stands in the request.
func (i inputItem) path() fieldPath {
	switch i.index {
	case ofPrevious:
		return pathOfPrevious
	case ofText:
		return pathOfInput
	}
	return pathOfInput.element(i.index)
}

// readInput collects the input's items, those of the response that it goes on
// from in front.
func (c *responsesCall) readInput(fields fieldList) *Error {
	if err := c.readPrevious(fields); err != nil {
		return err
	}
	raw := given(fields, "input")
	switch {
	case raw == nil:
		return missing("input")
	case jsonscan.IsString(raw):
		if len(raw) > len(`""`) {
			item := append([]byte(`{"type":"message","role":"user","content":[{"type":"input_text","text":`), raw...)
			return c.addItem(append(item, "}]}"...), ofText)
		}
		return nil
	case raw[0] != '[':
		return wrongType("input", "a string or an array", raw)
	}
	for m := jsonscan.Checked(raw); m.Next(); {
		if m.Raw()[0] != '{' {
			return wrongType(element("input", m.Index), "an object", m.Raw())
		}
		if err := c.addItem(m.Raw(), m.Index); err != nil {
			return err
		}
	}
	return nil
}

// addItem adds an item to the input, or that which it refers to. Clients refer
// to reasoning that they never had to keep: without it the model only thinks
// again.
func (c *responsesCall) addItem(raw []byte, index int) *Error {
	if err := c.elements.add(); err != nil {
		return err
	}
	c.fields = appendFields(c.fields, raw)
	kind := itemType(c.fields)
	if kind == "item_reference" && index >= 0 {
		id := c.fields.text("id")
		if id == "" {
			return missing(element("input", index) + ".id")
		}
		var err *Error
		if raw, err = c.referred(id, index); raw == nil || err != nil {
			return err
		}
		c.fields = appendFields(c.fields, raw)
		kind = itemType(c.fields)
	}
	if kind == "additional_tools" || kind == "tool_search_output" {
		c.toolItems = append(c.toolItems, len(c.items))
	}
	item := inputItem{raw, index}
	if kind == "message" && c.fields.text("role") == "" {
		path := item.path()
		return missing(path.of("role"))
	}
	c.items = append(c.items, item)
	return nil
}

// referred is the kept item of an id. Reasoning that is not kept is nil without
// an error.
func (c *responsesCall) referred(id string, index int) ([]byte, *Error) {
	if raw, ok := c.env.Kept.Item(id); ok {
		return raw, c.env.hold(len(raw))
	}
	if strings.HasPrefix(id, "rs_") {
		return nil, nil
	}
	return nil, invalid(element("input", index)+".id", "", "Item with id '%s' not found. Send the item itself.", show(id))
}

// readPrevious puts the items of the response before this one in front.
func (c *responsesCall) readPrevious(fields fieldList) *Error {
	const name = "previous_response_id"
	raw, err := c.typed(fields, name, name, aString)
	if raw == nil {
		return err
	}
	id := jsonscan.Unquote(raw)
	r, ok := c.env.Kept.Response(id)
	if !ok {
		return previousNotFound(id, c.env.Kept.Keeps())
	}
	size, items := 0, slices.Concat(r.Input, r.Output)
	for _, item := range items {
		size += len(item)
	}
	if err := c.env.hold(size); err != nil {
		return err
	}
	for _, item := range items {
		if err := c.addItem(item, ofPrevious); err != nil {
			return err
		}
	}
	return nil
}

// itemType is an item's type. A message may leave it out, and a reference.
func itemType(f fieldList) string {
	switch kind := f.text("type"); {
	case kind != "":
		return kind
	case given(f, "role") == nil && given(f, "content") == nil && given(f, "id") != nil:
		return "item_reference"
	}
	return "message"
}
