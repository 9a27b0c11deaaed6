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

// Where an item comes from that is not an element of the request's input.
const (
	ofPrevious = -1 // previous_response_id
	ofText     = -2 // the input, which is a string
)

// step is where the item stands in the request.
func (i inputItem) step() step {
	if i.index == ofPrevious {
		return step{"previous_response_id", -1}
	}
	return step{"input", i.index}
}

// readInput collects the input's items, those of the response that it goes on
// from in front.
func (c *responsesCall) readInput(f fieldList) {
	c.readPrevious(f)
	switch raw := f.given("input"); {
	case raw == nil:
		c.missing("input")
	case jsonscan.IsString(raw):
		if len(raw) > len(`""`) {
			item := append([]byte(`{"type":"message","role":"user","content":[{"type":"input_text","text":`), raw...)
			c.items = append(c.items, inputItem{append(item, "}]}"...), ofText})
		}
	case raw[0] == '[':
		for list := c.objects(f, "input"); list.next(); {
			c.addItem(list.fields, list.Raw(), list.Index)
		}
	default:
		c.wrongType("input", "a string or an array", raw)
	}
}

// addItem adds an item to the input, or the item that it refers to.
func (c *responsesCall) addItem(f fieldList, raw []byte, index int) {
	kind := itemType(f)
	if kind == "item_reference" && index != ofPrevious {
		if raw = c.referred(f); raw == nil {
			return
		}
		kind = itemType(readFields(raw))
	} else if kind == "message" && f.text("role") == "" {
		c.missing("role")
	}
	if kind == "additional_tools" || kind == "tool_search_output" {
		c.toolItems = append(c.toolItems, len(c.items))
	}
	c.items = append(c.items, inputItem{raw, index})
}

// referred is the kept item that a reference names. Clients refer to reasoning
// that they never had to keep: it may be missing, and the model only thinks again.
func (c *responsesCall) referred(f fieldList) []byte {
	id := f.text("id")
	if id == "" {
		c.missing("id")
		return nil
	}
	raw, ok := c.env.Kept.Item(id)
	switch {
	case ok:
		c.hold(len(raw))
	case !strings.HasPrefix(id, "rs_"):
		c.fault("id", "Item with id '%s' not found. Send the item itself.", show(id))
	}
	return raw
}

// readPrevious puts the items of the response before this one in front.
func (c *responsesCall) readPrevious(f fieldList) {
	raw := c.typed(f, "previous_response_id", aString)
	if raw == nil {
		return
	}
	id := jsonscan.Unquote(raw)
	r, ok := c.env.Kept.Response(id)
	if !ok {
		c.fail(previousNotFound(id, c.env.Kept.Keeps()))
		return
	}
	size, items := 0, slices.Concat(r.Input, r.Output)
	for _, item := range items {
		size += len(item)
	}
	c.hold(size)
	for i := 0; i < len(items) && c.count(); i++ {
		c.addItem(readFields(items[i]), items[i], ofPrevious)
	}
}

// itemType is an item's type. A message may leave it out, and a reference.
func itemType(f fieldList) string {
	switch kind := f.text("type"); {
	case kind != "":
		return kind
	case f.given("role") == nil && f.given("content") == nil && f.given("id") != nil:
		return "item_reference"
	}
	return "message"
}
