package main

import (
	"fmt"
	"io"
	"net"
	"strings"
)

// newBalancer starts a balancer of TCP connections and returns its address. It uses the edges in turn, and
// skips one that refuses a connection. It runs until the process ends.
func newBalancer(edges []*edge) (address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listening for connections: %w", err)
	}
	go func() {
		for turn := 0; ; turn++ {
			client, err := l.Accept()
			if err != nil {
				return // the listener is closed
			}
			go balance(client, edges, turn)
		}
	}()
	return l.Addr().String(), nil
}

func balance(client net.Conn, edges []*edge, turn int) {
	defer client.Close()
	for i := range edges {
		e := edges[(turn+i)%len(edges)]
		server, err := net.Dial("tcp", strings.TrimPrefix(e.URL, "http://"))
		if err != nil {
			continue
		}
		go func() {
			defer client.Close()
			_, _ = io.Copy(client, server) // any end closes the connection
		}()
		defer server.Close()
		_, _ = io.Copy(server, client)
		return
	}
}
