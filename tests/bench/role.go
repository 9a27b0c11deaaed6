package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// roleVariable names the environment variable that makes this program one of
// the processes that it measures with.
const roleVariable = "POSTERN_BENCH_ROLE"

// The roles.
const (
	roleUpstream  = "upstream"  // the scripted model server
	roleTunnels   = "tunnels"   // many idle connectors
	roleConnector = "connector" // one connector with Go's profiling endpoints
	roleLoss      = "loss"      // what measures on a lossy line, in a network of its own
)

// runRole runs this process in a role; it returns false for none.
func runRole(role string) (bool, error) {
	if role == "" {
		return false, nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch role {
	case roleUpstream:
		go func() { <-ctx.Done(); os.Exit(0) }() // it has nothing to finish
		return true, serveUpstream(os.Stdout)
	case roleTunnels:
		return true, holdTunnels(ctx, os.Stdin, os.Stdout)
	case roleConnector:
		return true, profiledConnector(ctx, os.Stdin, os.Stdout)
	case roleLoss:
		return true, lossInNamespace(ctx, os.Stdin, os.Stdout)
	}
	return true, fmt.Errorf("%s: %q is no role", roleVariable, role)
}
