// Package agents runs many connectors in one process, for programs that measure or test hundreds of connectors
// or more.
package agents

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
)

// StartInterval is the time between the starts of two connectors: a storm of
// handshakes on a slow machine leaves garbage and repeated connections behind.
const StartInterval = 5 * time.Millisecond

// Read returns the connectors for the configurations that it reads, one JSON object after the other. It stops
// at an error. options returns the options of the nth, from 0.
func Read(in io.Reader, options func(n int) agent.Options) iter.Seq2[*agent.Agent, error] {
	return func(yield func(*agent.Agent, error) bool) {
		dec := json.NewDecoder(bufio.NewReader(in))
		for n := 0; ; n++ {
			a, err := next(dec, options, n)
			if errors.Is(err, io.EOF) || !yield(a, err) || err != nil {
				return
			}
		}
	}
}

func next(dec *json.Decoder, options func(n int) agent.Options, n int) (*agent.Agent, error) {
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return nil, fmt.Errorf("reading configurations: %w", err)
	}
	config, err := config.Parse(raw)
	if err != nil {
		return nil, err
	}
	return agent.New(config, options(n))
}

// Run reads all configurations, announces the address of Go's profiling pages, and
// runs the connectors until ctx ends. It returns the errors of those that ended
// by themselves.
func Run(ctx context.Context, in io.Reader, announce io.Writer, options func(n int) agent.Options) error {
	var all []*agent.Agent
	for a, err := range Read(in, options) {
		if err != nil {
			return err
		}
		all = append(all, a)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer l.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	go func() { _ = http.Serve(l, mux) }() // ends with the listener
	fmt.Fprintln(announce, l.Addr())
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, a := range all {
		running.Go(func() { errs[i] = a.Run(ctx) })
		time.Sleep(StartInterval)
	}
	running.Wait()
	return errors.Join(errs...)
}
