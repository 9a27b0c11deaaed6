package dialect

import (
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// inputItem is an item of the input.
type inputItem struct {
	raw   []byte // a JSON object
	index int    // in the request's input, or previousIndex, or textIndex
}

// The index of items that are not elements of the request's input.
const (
	previousIndex = -1 // from previous_response_id
	textIndex     = -2 // from an input that is a string
)

// step returns the path of the item in the request.
func (i inputItem) step() step {
	if i.index == previousIndex {
		return step{"previous_response_id", -1}
	}
	return step{"input", i.index}
}

// readInput collects the items of the previous response and of the input.
func (c *responsesCall) readInput(f fieldList) {
	c.readPrevious(f)
	switch raw := f.given("input"); {
	case raw == nil:
		c.missing("input")
	case jsonscan.IsString(raw):
		if len(raw) > len(`""`) {
			item := append([]byte(`{"type":"message","role":"user","content":[{"type":"input_text","text":`), raw...)
			c.items = append(c.items, inputItem{append(item, "}]}"...), textIndex})
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
	if kind == "item_reference" && index != previousIndex {
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

// referred returns the kept item of a reference. Missing reasoning is not an error,
// because the conversation is valid without it.
func (c *responsesCall) referred(f fieldList) []byte {
	id := f.text("id")
	if id == "" {
		c.missing("id")
		return nil
	}
	raw, ok := c.env.Kept.Item(id)
	switch {
	case ok:
		c.reserve(len(raw))
	case !strings.HasPrefix(id, "rs_"):
		c.fault("id", "Item with id '%s' not found. Send the item itself.", show(id))
	}
	return raw
}

// readPrevious adds the items of the previous response.
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
	c.reserve(size)
	for i := 0; i < len(items) && c.count(); i++ {
		c.addItem(readFields(items[i]), items[i], previousIndex)
	}
}

// itemType returns the type of an item. Messages and references may omit it.
func itemType(f fieldList) string {
	switch kind := f.text("type"); {
	case kind != "":
		return kind
	case f.given("role") == nil && f.given("content") == nil && f.given("id") != nil:
		return "item_reference"
	}
	return "message"
}
