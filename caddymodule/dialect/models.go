package dialect

import (
	"net/url"
	"time"
)

// Model is an entry of the list of models.
type Model struct {
	ID      string
	Owner   string // the account
	Created time.Time
}

// ModelsList is the body of GET /v1/models. The query's limit, after_id and
// before_id count only if paging is set: the request has an anthropic-version.
func ModelsList(models []Model, query url.Values, paging bool) ([]byte, *Error) { return nil, nil }

// ModelObject is the body of GET /v1/models/{id}.
func ModelObject(m Model) []byte { return nil }
