package dialect

import "github.com/postern-dev/postern/caddymodule/dialect/jsonscan"

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

// readInput collects the items of the input, and what the request refers to.
func (c *responsesCall) readInput(f fieldList) {
	if raw := c.typed(f, "previous_response_id", aString); raw != nil {
		c.references = append(c.references, Reference{id: jsonscan.Unquote(raw), response: true})
	}
	switch raw := f.given("input"); {
	case raw == nil:
		c.missing("input")
	case jsonscan.IsString(raw):
		if len(raw) > len(`""`) {
			item := append([]byte(`{"type":"message","role":"user","content":[{"type":"input_text","text":`), raw...)
			c.items = append(c.items, inputItem{append(item, "}]}"...), textIndex})
		}
	case jsonscan.IsArray(raw):
		for list := c.objects(f, "input"); list.next(); {
			c.addItem(list.fields, list.Raw(), list.Index)
		}
	default:
		c.wrongType("input", "a string or an array", raw)
	}
}

// addItem adds an item to the input. A reference is added without the item that it refers to.
func (c *responsesCall) addItem(f fieldList, raw []byte, index int) {
	switch kind := itemType(f); {
	case kind == "item_reference" && index != previousIndex:
		id := f.text("id")
		if id == "" {
			c.missing("id")
			return
		}
		c.references, raw = append(c.references, Reference{id: id}), nil
	case kind == "message" && f.text("role") == "":
		c.missing("role")
	case listsTools(kind):
		c.toolItems = append(c.toolItems, len(c.items))
	}
	c.items = append(c.items, inputItem{raw, index})
}

// insertReferences adds the items that the request refers to. The error of a missing one precedes that of the input,
// which comes later in the request.
func (c *responsesCall) insertReferences() {
	if c.references == nil {
		return
	}
	input, tools, refers, later := c.items, c.toolItems, c.references, c.err
	c.items, c.references, c.toolItems, c.err = nil, nil, nil, nil
	if refers[0].response {
		if refers[0].items == nil {
			c.fail(previousNotFound(refers[0].id, c.env.Kept.Keeps()))
		}
		for i := 0; i < len(refers[0].items) && c.count(); i++ {
			item := refers[0].items[i]
			c.addItem(readFields(item), item, previousIndex)
		}
		refers = refers[1:]
	}
	for i := 0; i < len(input) && c.err == nil; i++ {
		item := input[i]
		hasTools := len(tools) > 0 && tools[0] == i
		if hasTools {
			tools = tools[1:]
		}
		if item.raw == nil {
			if item.raw = c.referencedItem(&refers[0], item); item.raw == nil {
				refers = refers[1:]
				continue
			}
			refers, hasTools = refers[1:], listsTools(itemType(readFields(item.raw)))
		}
		if hasTools {
			c.toolItems = append(c.toolItems, len(c.items))
		}
		c.items = append(c.items, item)
	}
	if c.err == nil {
		c.err = later
	}
}

// referencedItem returns the item of a reference, nil if it is missing.
func (c *responsesCall) referencedItem(r *Reference, at inputItem) []byte {
	switch {
	case r.items != nil:
		return r.items[0]
	case !r.optional():
		c.path = append(c.path, at.step())
		c.fault("id", "Item with id '%s' not found. Send the item itself.", show(r.id))
		c.path = c.path[:len(c.path)-1]
	}
	return nil
}

// listsTools reports whether items of a type have tools.
func listsTools(kind string) bool { return kind == "additional_tools" || kind == "tool_search_output" }

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
