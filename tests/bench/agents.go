package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/tests/agents"
)

// holdTunnels keeps the connectors on standard input dialled in.
func holdTunnels(ctx context.Context, in io.Reader, announce io.Writer) error {
	silent := agent.Options{Logger: slog.New(slog.DiscardHandler)}
	return agents.Run(ctx, in, func(int) agent.Options { return silent }, func() { fmt.Fprintln(announce, "ready") })
}

// profiledConnector runs the connector on standard input, and announces where
// its profiling pages are.
func profiledConnector(ctx context.Context, in io.Reader, announce io.Writer) error {
	address, stop, err := agents.Profile()
	if err != nil {
		return err
	}
	defer stop()
	loud := agent.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	return agents.Run(ctx, in, func(int) agent.Options { return loud }, func() { fmt.Fprintln(announce, address) })
}
