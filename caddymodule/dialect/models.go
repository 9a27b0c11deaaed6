package dialect

import (
	"fmt"
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
	Window  int      // the context window in tokens; 0: not known
	Output  int      // tokens of the largest answer; 0: not known
	State   string   // such as "available", see the package health
	Status  string   // "loading" or "unloaded", else ""
	Efforts []string // the levels of messages requests that the model server gets
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
		b = m.append(b, d)
	}
	return appendListEnd(b, len(list), more, func(i int) string { return list[i].ID }), nil
}

// ModelObject returns the body of GET /v1/models/{id}.
func ModelObject(d Dialect, m Model) []byte {
	return append(m.append(make([]byte, 0, 256), d), '\n')
}

// append appends the model's object. Clients read the context window under several names.
func (m Model) append(b []byte, d Dialect) []byte {
	b = jsonscan.Appendf(b, `{"id":%q,"object":"model","created":%d,"owned_by":%q,"kind":%q,"state":%q,`+
		`"type":"model","display_name":%q,"created_at":%q`,
		m.ID, m.Created.Unix(), m.Owner, m.Kind, m.State, m.ID, m.Created.UTC().Format(time.RFC3339))
	if m.Window > 0 {
		b = jsonscan.Appendf(b, `,"description":"%s model with a context window of %d tokens",`+
			`"context_length":%d,"max_model_len":%d,"max_input_tokens":%d,"meta":{"n_ctx":%d}`,
			m.Kind, m.Window, m.Window, m.Window, m.Window, m.Window)
	}
	if m.Status != "" {
		b = jsonscan.Appendf(b, `,"status":{"value":%q}`, m.Status) // as llama.cpp's router lists it
	}
	if d == Messages {
		has := func(level string) bool { return slices.Contains(m.Efforts, level) }
		b = jsonscan.Appendf(b, `,"max_tokens":%n`, int64(m.Output))
		b = fmt.Appendf(b, modelInfo, len(m.Efforts) > 0, has("low"), has("medium"), has("high"), has("xhigh"),
			has("max"), m.Kind != "embeddings")
	}
	return append(b, '}')
}

// modelInfo contains the other members of Anthropic's ModelInfo. Unknown ones, such as the input of images, are false.
var modelInfo = strings.ReplaceAll(`,"lifecycle":"active","line":null,"deprecated_at":null,"retires_at":null,`+
	`"capabilities":{"batch":NO,"citations":NO,"code_execution":NO,"context_management":{"supported":false,`+
	`"clear_thinking_20251015":NO,"clear_tool_uses_20250919":NO,"compact_20260112":NO},`+
	`"effort":{"supported":%[1]t,"low":{"supported":%[2]t},"medium":{"supported":%[3]t},"high":{"supported":%[4]t},`+
	`"xhigh":{"supported":%[5]t},"max":{"supported":%[6]t}},"image_input":NO,"pdf_input":NO,`+
	`"server_tools":{"supported":false,"code_execution":NO,"web_search":NO},"structured_outputs":{"supported":%[7]t},`+
	`"thinking":{"supported":%[1]t,"types":{"adaptive":{"supported":%[1]t},"between_tools":NO,`+
	`"disabled":{"supported":%[7]t},"enabled":{"supported":%[1]t}}}}`, "NO", `{"supported":false}`)

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

// SpeechList returns the body of GET /v1/audio/models, in the forms of two kinds of clients.
func SpeechList(names []string) []byte {
	var models []byte
	for i, name := range names {
		if i > 0 {
			models = append(models, ',')
		}
		models = jsonscan.Appendf(models, `{"id":%q,"object":"model"}`, name)
	}
	return jsonscan.Appendf(nil, `{"object":"list","models":[%s],"data":[%s]}`+"\n", models, models)
}
