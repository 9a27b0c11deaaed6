package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// The roles of the processes that this program measures with.
const (
	roleUpstream  = "upstream"  // the scripted model server
	roleTunnels   = "tunnels"   // many idle connectors
	roleConnector = "connector" // one connector with Go's profiling endpoints
	roleLoss      = "loss"      // what measures on a lossy line, in a network of its own
)

// poll is the time between two looks at something that is awaited.
const poll = 20 * time.Millisecond

func program() command.Command {
	return command.Command{Name: "bench", Roles: map[string]command.Role{
		roleUpstream: func(ctx context.Context, _ io.Reader, out io.Writer) error {
			context.AfterFunc(ctx, func() { os.Exit(0) }) // it has nothing to finish
			return play.Serve("127.0.0.1:0", out)
		},
		roleTunnels:   holdTunnels,
		roleConnector: profiledConnector,
		roleLoss:      lossInNamespace,
	}}
}
