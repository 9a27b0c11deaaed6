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
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/agent"
)

// startInterval is the time between the starts of two connectors: a storm of
// handshakes on a slow machine leaves garbage and repeated connections behind,
// and it is not what is measured here.
const startInterval = 5 * time.Millisecond

// runAgents reads configurations of connectors, one JSON object after the
// other, and runs them until ctx ends. ready is called when it has read them.
func runAgents(ctx context.Context, in io.Reader, log *slog.Logger, ready func()) error {
	all, err := readAgents(in, log)
	if err != nil {
		return err
	}
	ready()
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, a := range all {
		running.Go(func() { errs[i] = a.Run(ctx) })
		time.Sleep(startInterval)
	}
	running.Wait()
	return errors.Join(errs...)
}

func readAgents(in io.Reader, log *slog.Logger) ([]*agent.Agent, error) {
	var all []*agent.Agent
	dec := json.NewDecoder(bufio.NewReader(in))
	for {
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
		a, err := agent.New(config, agent.Options{Logger: log})
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
}

// holdTunnels keeps the connectors on standard input dialled in.
func holdTunnels(ctx context.Context, in io.Reader, announce io.Writer) error {
	return runAgents(ctx, in, slog.New(slog.DiscardHandler), func() { fmt.Fprintln(announce, "ready") })
}

// profiledConnector runs the connector on standard input, and announces where
// its profiling pages are.
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
	return runAgents(ctx, in, slog.New(slog.NewTextHandler(os.Stderr, nil)), func() { fmt.Fprintln(announce, l.Addr()) })
}
