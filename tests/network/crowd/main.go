// Command crowd runs many connectors in one process. It is a separate program, and not a role of the tests, so
// that it is built without the race detector. With that, 3,000 connectors would need 7 GB and five times the
// CPU time.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/tests/agents"
)

func main() {
	silent := agent.Options{Logger: slog.New(slog.DiscardHandler)}
	options := func(int) agent.Options { return silent }
	if err := agents.Run(context.Background(), os.Stdin, os.Stdout, options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
