// Command crowd runs many connectors in one process. It is a program of its own,
// and not a role of the tests, to be built without the race detector: with it,
// 3,000 connectors would take 7 GB and five times the processor.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/postern-dev/postern/connector/agent"
)

func main() {
	if err := run(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs the connectors whose configurations come in, until the process is
// killed.
func run(in io.Reader) error {
	for dec := json.NewDecoder(bufio.NewReader(in)); ; {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			select {}
		}
		if err != nil {
			return fmt.Errorf("reading configurations: %w", err)
		}
		config, err := agent.ParseConfig(raw)
		if err != nil {
			return err
		}
		a, err := agent.New(config, agent.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		go func() {
			if err := a.Run(context.Background()); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
}
