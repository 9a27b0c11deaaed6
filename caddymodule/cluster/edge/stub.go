package edge

import (
	"context"
	"io"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
)

func (e *Edge) NewID(prefix string) string { return dialect.NewID(prefix) }
func (e *Edge) Fetch(context.Context, kept.Owner, string, bool, func(io.Reader) error) error {
	return nil
}
func (e *Edge) Reports(context.Context, string) (map[string]activity.Report, []string) {
	return nil, nil
}
func (e *Edge) Find(context.Context, string, activity.Query) ([]activity.Found, []string) {
	return nil, nil
}
