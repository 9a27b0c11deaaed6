package main

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/tests/agents"
)

// holdTunnels keeps the connectors on standard input dialed in.
func holdTunnels(ctx context.Context, in io.Reader, announce io.Writer) error {
	silent := agent.Options{Logger: slog.New(slog.DiscardHandler)}
	return agents.Run(ctx, in, announce, func(int) agent.Options { return silent })
}

// profiledConnector runs the connector on standard input, and announces where
// its profiling pages are.
func profiledConnector(ctx context.Context, in io.Reader, announce io.Writer) error {
	loud := agent.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	return agents.Run(ctx, in, announce, func(int) agent.Options { return loud })
}
