package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/postern-dev/postern/connector/agent"
)

// roleVariable names the environment variable that makes this program one of
// the processes that it measures with.
const roleVariable = "POSTERN_BENCH_ROLE"

// The roles.
const (
	roleUpstream  = "upstream"  // the scripted model server
	roleTunnels   = "tunnels"   // many idle connectors
	roleConnector = "connector" // one connector with Go's profiling endpoints
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
	}
	return true, fmt.Errorf("%s: %q is no role", roleVariable, role)
}

// agents reads configurations of connectors, one JSON object after the other,
// and runs them until ctx ends. started is called when all have been started.
func agents(ctx context.Context, in io.Reader, log *slog.Logger, started func()) error {
	var all []*agent.Agent
	for dec := json.NewDecoder(bufio.NewReader(in)); ; {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("reading configurations: %w", err)
		}
		config, err := agent.ParseConfig(raw)
		if err != nil {
			return err
		}
		a, err := agent.New(config, agent.Options{Logger: log})
		if err != nil {
			return err
		}
		all = append(all, a)
	}
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, a := range all {
		running.Go(func() { errs[i] = a.Run(ctx) })
	}
	started()
	running.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// holdTunnels keeps the connectors on standard input dialled in.
func holdTunnels(ctx context.Context, in io.Reader, announce io.Writer) error {
	return agents(ctx, in, slog.New(slog.DiscardHandler), func() { fmt.Fprintln(announce, "started") })
}

// profiledConnector runs one connector, and announces where its profiling
// endpoints are.
func profiledConnector(ctx context.Context, in io.Reader, announce io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer l.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	go func() { _ = http.Serve(l, mux) }() // ends with the listener
	return agents(ctx, in, slog.New(slog.NewTextHandler(os.Stderr, nil)), func() { fmt.Fprintln(announce, l.Addr()) })
}
