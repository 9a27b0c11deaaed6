package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/tests/agents"
	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// The roles of the processes of a run.
const (
	roleUpstream = "upstream" // a scripted model server
	roleHost     = "host"     // many connectors in one process
)

// addressVariable names the environment variable that says where an upstream serves.
const addressVariable = "POSTERN_SOAK_ADDRESS"

// poll is the time between two looks at something that is awaited.
const poll = 250 * time.Millisecond

func program() command.Command {
	return command.Command{Name: "soak", Roles: map[string]command.Role{
		roleUpstream: func(ctx context.Context, _ io.Reader, out io.Writer) error {
			context.AfterFunc(ctx, func() { os.Exit(0) }) // it has nothing to finish
			return play.Serve(os.Getenv(addressVariable), out)
		},
		roleHost: hostConnectors,
	}}
}

// hostConnectors runs the connectors whose configurations come in, one JSON
// object after the other, and announces where its profiling pages are when it
// begins to start them.
func hostConnectors(ctx context.Context, in io.Reader, announce io.Writer) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	// A connector that ends is to end soon: what it drains is counted.
	options := func(n int) agent.Options {
		return agent.Options{Logger: logger.With("number", n), DrainTimeout: 10 * time.Second}
	}
	return agents.Run(ctx, in, announce, options)
}
