package dialect

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// TokenCount is the answer to CountTokens or CountInputTokens.
func TokenCount(op Operation, tokens int) []byte {
	b := []byte(`{"input_tokens":`)
	if op.Kind == CountInputTokens {
		b = []byte(`{"object":"response.input_tokens","input_tokens":`)
	}
	return append(strconv.AppendInt(b, int64(tokens), 10), "}\n"...)
}

// DeletedResponse is the answer to DeleteResponse.
func DeletedResponse(id string) []byte {
	return append(jsonscan.AppendQuoted([]byte(`{"id":`), id), `,"object":"response","deleted":true}`+"\n"...)
}

// How many input items one page of a list has.
const (
	defaultItems = 20
	maxItems     = 100
)

// InputItems is the answer to ListInputItems: the page of a kept response's
// input items that the query wants, by limit, order (desc unless it is asc)
// and after.
func InputItems(items [][]byte, q url.Values) ([]byte, *Error) {
	limit := defaultItems
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxItems {
			return nil, invalid("limit", "", "limit must be between 1 and %d.", maxItems)
		}
		limit = n
	}
	items = slices.Clone(items)
	switch order := q.Get("order"); order {
	case "", "desc":
		slices.Reverse(items)
	case "asc":
	default:
		return nil, invalid("order", "", "order must be asc or desc.")
	}
	if after := q.Get("after"); after != "" {
		at := slices.IndexFunc(items, func(raw []byte) bool { return jsonscan.Text(raw, "id") == after })
		if at < 0 {
			return nil, invalid("after", "", "There is no input item with the id '%s'.", show(after))
		}
		items = items[at+1:]
	}
	more := len(items) > limit
	return appendItemList(items[:min(len(items), limit)], more), nil
}

// appendItemList writes a page of items.
func appendItemList(items [][]byte, more bool) []byte {
	first, last := "", ""
	b := []byte(`{"object":"list","data":[`)
	for i, raw := range items {
		if i == 0 {
			first = jsonscan.Text(raw, "id")
		} else {
			b = append(b, ',')
		}
		last = jsonscan.Text(raw, "id")
		b = append(b, raw...)
	}
	b = jsonscan.AppendQuotedOrNull(append(b, `],"first_id":`...), first)
	b = jsonscan.AppendQuotedOrNull(append(b, `,"last_id":`...), last)
	b = strconv.AppendBool(append(b, `,"has_more":`...), more)
	return append(b, "}\n"...)
}
