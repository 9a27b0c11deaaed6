package gateway

import (
	"context"
	"log/slog"
)

// currentLog is a handler that writes to the log of the current configuration. A reload may change what is logged, and
// where.
type currentLog struct {
	store  *Store
	first  slog.Handler                    // before the first configuration has started, and after the last one
	derive func(slog.Handler) slog.Handler // adds attributes and groups
}

func (l currentLog) handler() slog.Handler {
	if g, ok := l.store.configurations.Newest(); ok {
		return l.derive(g.Logger.Handler())
	}
	return l.derive(l.first)
}

// Enabled implements [slog.Handler].
func (l currentLog) Enabled(ctx context.Context, level slog.Level) bool {
	return l.handler().Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (l currentLog) Handle(ctx context.Context, r slog.Record) error {
	return l.handler().Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (l currentLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	before := l.derive
	l.derive = func(h slog.Handler) slog.Handler { return before(h).WithAttrs(attrs) }
	return l
}

// WithGroup implements [slog.Handler].
func (l currentLog) WithGroup(name string) slog.Handler {
	before := l.derive
	l.derive = func(h slog.Handler) slog.Handler { return before(h).WithGroup(name) }
	return l
}
