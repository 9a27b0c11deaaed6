package dialect

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Model is an entry of the list of models.
type Model struct {
	ID      string // the public name
	Kind    string // chat or embeddings
	Owner   string // the account
	Created time.Time
	Window  int // the context window in tokens; 0: not known
}

// maxPage is the maximum limit of a page of models.
const maxPage = 1000

// ModelsList returns the body of GET /v1/models, sorted by name. It combines the OpenAI
// and the Anthropic format. The parameters limit, after_id and before_id are only used in the
// messages dialect.
func ModelsList(d Dialect, models []Model, query url.Values) ([]byte, *Error) {
	list := slices.SortedFunc(slices.Values(models), func(a, b Model) int { return strings.Compare(a.ID, b.ID) })
	more := false
	if d.format().pages {
		limit, err := queryLimit(query, len(list), maxPage)
		if err != nil {
			return nil, err
		}
		list, more = pageOf(list, query.Get("after_id"), query.Get("before_id"), limit)
	}
	b := append(make([]byte, 0, 128+256*len(list)), `{"object":"list","data":[`...)
	for i, m := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = m.append(b)
	}
	return appendListEnd(b, len(list), more, func(i int) string { return list[i].ID }), nil
}

// ModelObject returns the body of GET /v1/models/{id}.
func ModelObject(m Model) []byte {
	return append(m.append(make([]byte, 0, 256)), '\n')
}

// append appends the model's object. Clients read the context window under several names.
func (m Model) append(b []byte) []byte {
	b = jsonscan.Appendf(b, `{"id":%q,"object":"model","created":%d,"owned_by":%q,"kind":%q,"type":"model",`+
		`"display_name":%q,"created_at":%q`,
		m.ID, m.Created.Unix(), m.Owner, m.Kind, m.ID, m.Created.UTC().Format(time.RFC3339))
	if m.Window > 0 {
		b = jsonscan.Appendf(b, `,"context_length":%d,"max_model_len":%d,"max_input_tokens":%d,"meta":{"n_ctx":%d}`,
			m.Window, m.Window, m.Window, m.Window)
	}
	return append(b, '}')
}

// pageOf returns a page of a sorted list. more reports whether the list continues in the
// direction of paging. The ids are positions in the order of names, so the models need
// not exist. With both ids, the page is between them, and paging goes backwards.
func pageOf(list []Model, after, before string, limit int) (_ []Model, more bool) {
	if after != "" {
		list = list[sortIndex(list, after, true):]
	}
	if before != "" {
		list = list[:sortIndex(list, before, false)]
	}
	switch {
	case limit >= len(list):
		return list, false
	case before != "":
		return list[len(list)-limit:], true
	}
	return list[:limit], true
}

// sortIndex returns the index of an id in a sorted list, or the next one if after is set.
func sortIndex(list []Model, id string, after bool) int {
	i, found := slices.BinarySearchFunc(list, id, func(m Model, id string) int { return strings.Compare(m.ID, id) })
	if found && after {
		i++
	}
	return i
}
