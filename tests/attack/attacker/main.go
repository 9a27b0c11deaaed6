//go:build linux

// Command attacker attacks a gateway on loopback, for the tests in the folder above. It is a separate program,
// because these run under the race detector, which would make the attack too slow.
//
// It reads an [order] from its standard input, attacks until that is closed, and prints a summary. It does not
// use the address 127.0.0.1.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

const (
	// Number of parallel attackers, and of their addresses.
	attackers, addresses = 400, 4
	// rampUp is the time in which the attackers start. It is long, because the tests are about memory and the
	// gateway uses the same processors.
	rampUp = 2 * time.Second
)

// An order describes an attack.
type order struct {
	Attack string
	UDP    string   // address for connectors
	URL    string   // URL of the site
	Key    string   // key for the API
	Tokens []string // tunnel tokens
}

// A target is the gateway under attack.
type target struct {
	order
	tokens []link.Token
}

// An attack runs until ctx ends, and returns a summary.
type attack func(ctx context.Context, g *target) string

func attacks() map[string]attack {
	all := map[string]attack{
		"quic/handshakes":      overQUIC(quicHandshake),
		"quic/hellos":          overQUIC(quicHello),
		"quic/streams":         overQUIC(quicStreams),
		"websocket/handshakes": overWebSocket(webHandshake),
		"websocket/hellos":     overWebSocket(webHello),
		"websocket/packets":    overWebSocket(webPackets),
		"floods":               flooding,
		"slow":                 slowClients,
	}
	for name := range costlyRequests {
		all["costly/"+name] = costing(name)
	}
	return all
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "attacker:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadString('\n')
	if err != nil {
		return fmt.Errorf("reading the order: %w", err)
	}
	g := &target{}
	if err := json.Unmarshal([]byte(line), &g.order); err != nil {
		return fmt.Errorf("reading the order: %w", err)
	}
	for _, text := range g.Tokens {
		token, err := link.ParseToken(text)
		if err != nil {
			return err
		}
		g.tokens = append(g.tokens, token)
	}
	all := attacks()
	attack := all[g.Attack]
	if attack == nil {
		return fmt.Errorf("unknown attack %q", g.Attack)
	}
	if !strings.Contains(g.URL, "://127.0.0.1:") && !strings.Contains(g.URL, "://localhost:") {
		return fmt.Errorf("%s is not on loopback", g.URL)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		cancel()
	}()
	_, err = fmt.Fprintln(out, attack(ctx, g))
	return err
}
