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
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
)

// StartInterval is the time between the starts of two connectors: a storm of
// handshakes on a slow machine leaves garbage and repeated connections behind.
const StartInterval = 5 * time.Millisecond

// Run announces the address of Go's profiling pages, and runs the connectors for the configurations that it reads, one
// JSON object after the other, until ctx ends. It returns the first error of those that ended by themselves. options
// returns the options of the nth, from 0.
func Run(ctx context.Context, in io.Reader, announce io.Writer, options func(n int) agent.Options) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	defer l.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	go func() { _ = http.Serve(l, mux) }() // ends with the listener
	fmt.Fprintln(announce, l.Addr())
	var all errgroup.Group
	dec := json.NewDecoder(bufio.NewReader(in))
	for n := 0; ; n++ {
		var raw json.RawMessage
		if err := dec.Decode(&raw); errors.Is(err, io.EOF) {
			return all.Wait()
		} else if err != nil {
			return fmt.Errorf("reading configurations: %w", err)
		}
		config, err := config.Parse(raw)
		if err != nil {
			return err
		}
		a, err := agent.New(config, options(n))
		if err != nil {
			return err
		}
		all.Go(func() error { return a.Run(ctx) })
		time.Sleep(StartInterval)
	}
}
