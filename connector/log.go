package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/tty"
)

func logFlags(command *cobra.Command, format, level *string) {
	flags := command.Flags()
	flags.StringVar(format, "log-format", "auto",
		"`FORMAT` of the log: auto (text on a terminal, JSON otherwise), text or json")
	flags.StringVar(level, "log-level", "info", "lowest `LEVEL` that is logged: debug, info, warn or error")
}

func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var lowest slog.Level
	if err := lowest.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level: unknown level %q; use debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: lowest}
	if format == "auto" {
		format = "json"
		if tty.Is(w) {
			format = "text"
		}
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	default:
		return nil, fmt.Errorf("--log-format: unknown format %q; use auto, text or json", format)
	}
}
