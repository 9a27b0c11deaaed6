package dialect

import (
	"bytes"
	"net/url"
	"slices"
	"strconv"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// TokenCount returns the body for a request that counts tokens.
func TokenCount(d Dialect, tokens int) []byte {
	return append(jsonscan.Appendf(nil, d.format().tokenCount, tokens), '\n')
}

// WholeOnly fails if a request for a kept response asks for its events.
func WholeOnly(q url.Values) *Error {
	for _, name := range [...]string{"stream", "starting_after"} {
		if v := q.Get(name); v != "" && v != "false" {
			return invalid(name, "unsupported_parameter", "Unsupported parameter: %s. Kept responses cannot be streamed "+
				"again. Omit it to get the whole response.", name)
		}
	}
	return nil
}

// DeletedResponse returns the body for DeleteResponse.
func DeletedResponse(id string) []byte {
	return jsonscan.Appendf(nil, `{"id":%q,"object":"response","deleted":true}`+"\n", id)
}

// InputItems returns the body for ListInputItems: a page of a kept response's input
// items. The query parameters are limit, order (default desc) and after.
func InputItems(items [][]byte, q url.Values) ([]byte, *Error) {
	limit, err := queryLimit(q, 20, 100)
	if err != nil {
		return nil, err
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
			return nil, invalid("after", "", "Input item with id '%s' not found.", show(after))
		}
		items = items[at+1:]
	}
	more := len(items) > limit
	items = items[:min(len(items), limit)]
	b := append([]byte(`{"object":"list","data":[`), bytes.Join(items, []byte{','})...)
	return appendListEnd(b, len(items), more, func(i int) string { return jsonscan.Text(items[i], "id") }), nil
}

// queryLimit returns the requested number of list entries, standard if there is none.
func queryLimit(q url.Values, standard, maximum int) (int, *Error) {
	text := q.Get("limit")
	if text == "" {
		return standard, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maximum {
		return 0, invalid("limit", "", "limit must be a whole number from 1 to %d.", maximum)
	}
	return n, nil
}

// appendListEnd appends the members that follow the n entries of a list.
func appendListEnd(b []byte, n int, more bool, id func(i int) string) []byte {
	first, last := "", ""
	if n > 0 {
		first, last = id(0), id(n-1)
	}
	return jsonscan.Appendf(b, `],"has_more":%s,"first_id":%n,"last_id":%n}`+"\n", strconv.FormatBool(more), first, last)
}
