package etcd

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// clientLogger returns the logger for the client of etcd. It writes for debugging only:
// the client reports each failed attempt, but not whether the call failed.
func clientLogger(to *slog.Logger) *zap.Logger { return zap.New(&debugCore{to: to}) }

type debugCore struct{ to *slog.Logger }

func (c *debugCore) Enabled(zapcore.Level) bool {
	return c.to.Enabled(context.Background(), slog.LevelDebug)
}

func (c *debugCore) With(fields []zapcore.Field) zapcore.Core {
	return &debugCore{to: c.to.With(attributes(fields)...)}
}

func (c *debugCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c *debugCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.to.Debug("etcd client: "+e.Message, attributes(fields)...)
	return nil
}

func (c *debugCore) Sync() error { return nil }

func attributes(fields []zapcore.Field) (out []any) {
	m := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(m)
	}
	for name, value := range m.Fields {
		out = append(out, name, value)
	}
	return out
}
