package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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
	"time"

	"github.com/postern-dev/postern/connector/agent"
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

// startInterval is the time between the starts of two connectors: a rush is
// among the faults, and not how a run begins.
const startInterval = 5 * time.Millisecond

// hostConnectors runs the connectors whose configurations come in, one JSON
// object after the other, and announces where its profiling pages are.
func hostConnectors(ctx context.Context, in io.Reader, announce io.Writer) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	all, err := readAgents(in, logger)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer l.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	go func() { _ = http.Serve(l, mux) }() // ends with the listener
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, a := range all {
		running.Go(func() { errs[i] = a.Run(ctx) })
		time.Sleep(startInterval)
	}
	fmt.Fprintln(announce, l.Addr())
	running.Wait()
	return errors.Join(errs...)
}

func readAgents(in io.Reader, logger *slog.Logger) ([]*agent.Agent, error) {
	var all []*agent.Agent
	for dec := json.NewDecoder(bufio.NewReader(in)); ; {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading configurations: %w", err)
		}
		config, err := agent.ParseConfig(raw)
		if err != nil {
			return nil, err
		}
		// A connector that ends is to end soon: what it drains is counted.
		a, err := agent.New(config, agent.Options{Logger: logger.With("number", len(all)), DrainTimeout: 10 * time.Second})
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
}
