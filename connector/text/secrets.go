package text

import (
	"fmt"
	"io"
	"log/slog"
)

// Secrets is embedded in a struct that contains secrets: fmt, slog and zap print hidden instead of the struct. Its
// JSON is not affected.
type Secrets struct{}

const hidden = "(secret)"

// String implements [fmt.Stringer], which zap calls.
func (Secrets) String() string { return hidden }

// Format implements [fmt.Formatter], for all verbs.
func (Secrets) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, hidden) }

// LogValue implements [slog.LogValuer].
func (Secrets) LogValue() slog.Value { return slog.StringValue(hidden) }
