package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/tests/agents"
)

// roleVariable names the environment variable that makes this program one of
// the processes of a run; addressVariable is where an upstream serves.
const (
	roleVariable    = "POSTERN_SOAK_ROLE"
	addressVariable = "POSTERN_SOAK_ADDRESS"
)

// The roles.
const (
	roleUpstream = "upstream" // a scripted model server
	roleHost     = "host"     // many connectors in one process
)

// runRole runs this process in a role; it returns false for none.
func runRole(role string) (bool, error) {
	switch role {
	case "":
		return false, nil
	case roleUpstream:
		return true, serveUpstream(os.Getenv(addressVariable), os.Stdout)
	case roleHost:
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return true, hostConnectors(ctx, os.Stdin, os.Stdout)
	}
	return true, fmt.Errorf("%s: %q is no role", roleVariable, role)
}

// hostConnectors runs the connectors whose configurations come in, one JSON
// object after the other, and announces where its profiling pages are when it
// begins to start them.
func hostConnectors(ctx context.Context, in io.Reader, announce io.Writer) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	address, stop, err := agents.Profile()
	if err != nil {
		return err
	}
	defer stop()
	// A connector that ends is to end soon: what it drains is counted.
	options := func(n int) agent.Options {
		return agent.Options{Logger: logger.With("number", n), DrainTimeout: 10 * time.Second}
	}
	return agents.Run(ctx, in, options, func() { fmt.Fprintln(announce, address) })
}
