package dialect

import "strings"

// inputItem is an item of the input and where it stands in the request.
type inputItem struct {
	raw    []byte // an object
	fields map[string][]byte
	path   string
}

// newItem reads an item's members.
func newItem(raw []byte, path string) inputItem {
	return inputItem{raw, fieldsByName(raw), path}
}

// readInput collects the input's items, those of the response that it goes on
// from in front.
func (c *responsesCall) readInput(fields map[string][]byte) *Error {
	if err := c.readPrevious(fields); err != nil {
		return err
	}
	raw := given(fields, "input")
	switch {
	case raw == nil:
		return missing("input")
	case isString(raw):
		if len(raw) > len(`""`) {
			item := append([]byte(`{"type":"message","role":"user","content":[{"type":"input_text","text":`), raw...)
			c.items = append(c.items, newItem(append(item, "}]}"...), "input"))
		}
		return nil
	case raw[0] != '[':
		return wrongType("input", "a string or an array", raw)
	}
	for m := checkedMembers(raw); m.next(); {
		path := element("input", m.index)
		if m.raw()[0] != '{' {
			return wrongType(path, "an object", m.raw())
		}
		item, ok, err := c.resolve(newItem(m.raw(), path))
		if err != nil {
			return err
		}
		if ok {
			c.items = append(c.items, item)
		}
	}
	return nil
}

// readPrevious puts the items of the response before this one in front.
func (c *responsesCall) readPrevious(fields map[string][]byte) *Error {
	const name = "previous_response_id"
	raw := given(fields, name)
	if raw == nil {
		return nil
	}
	if !isString(raw) {
		return wrongType(name, "a string", raw)
	}
	id := unquote(raw)
	if c.env.Kept == nil {
		return previousNotFound(id, false)
	}
	r, ok := c.env.Kept.Response(c.env.Account, id)
	if !ok {
		return previousNotFound(id, true)
	}
	size := 0
	for _, items := range [...][][]byte{r.Input, r.Output} {
		for _, item := range items {
			size += len(item)
		}
	}
	if err := c.env.hold(size); err != nil {
		return err
	}
	for _, items := range [...][][]byte{r.Input, r.Output} {
		for _, item := range items {
			c.items = append(c.items, newItem(item, name))
		}
	}
	return nil
}

// resolve finds the item that a reference means. Clients refer to reasoning
// that they never had to keep: without it the model only thinks anew.
func (c *responsesCall) resolve(item inputItem) (_ inputItem, ok bool, _ *Error) {
	if itemType(item.fields) != "item_reference" {
		return item, true, nil
	}
	id := stringOf(item.fields["id"])
	if id == "" {
		return item, false, missing(item.path + ".id")
	}
	if c.env.Kept != nil {
		if raw, ok := c.env.Kept.Item(c.env.Account, id); ok {
			return newItem(raw, item.path), true, c.env.hold(len(raw))
		}
	}
	if strings.HasPrefix(id, "rs_") {
		return item, false, nil
	}
	return item, false, invalid(item.path+".id", "", "Item with id '%s' not found. Send the item itself.", show(id))
}

// itemType is an item's type. A message may leave it out, and a reference.
func itemType(f map[string][]byte) string {
	switch kind := stringOf(f["type"]); {
	case kind != "":
		return kind
	case given(f, "role") == nil && given(f, "content") == nil && given(f, "id") != nil:
		return "item_reference"
	}
	return "message"
}
