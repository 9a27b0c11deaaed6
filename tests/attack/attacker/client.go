//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// slowClients sends requests that never end, including upgrades to the tunnel.
func slowClients(ctx context.Context, g *target) string {
	starts := []string{
		"", "GET " + link.WebSocketPath + " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nA: ",
		"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 30000000\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 500<<10),
	}
	runs, failed := crowd(ctx, attackers, func(i, _ int) error {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: address(i)}}
		conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(g.URL, "http://"))
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		_, err = io.WriteString(conn, starts[i%len(starts)])
		for err == nil {
			_, err = conn.Write([]byte("x"))
			time.Sleep(time.Second)
		}
		return nil
	})
	return fmt.Sprintf("%d connections, %d of them refused", runs, failed)
}

// endlessAnswers sends requests for models with endless answers, in all dialects, streamed and whole.
func endlessAnswers(ctx context.Context, g *target) string {
	dialects := []string{"/v1/chat/completions", "/v1/responses", "/v1/messages"}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	var count tally
	crowd(ctx, 2*len(g.Models)*len(dialects), func(i, _ int) error {
		model, path := g.Models[i%len(g.Models)], dialects[i/len(g.Models)%len(dialects)]
		stream := i >= len(g.Models)*len(dialects)
		body := fmt.Sprintf(`{"model":%q,"max_tokens":9,"stream":%t,"messages":[{"role":"user","content":"x"}]}`,
			model, stream)
		if path == "/v1/responses" {
			body = fmt.Sprintf(`{"model":%q,"stream":%t,"input":"x"}`, model, stream)
		}
		limited, cancel := context.WithTimeout(ctx, 4*time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(limited, http.MethodPost, g.URL+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+g.Key)
		r.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(r)
		if err != nil {
			return nil // timeout
		}
		defer answer.Body.Close()
		_, _ = io.Copy(io.Discard, answer.Body)
		count.add(fmt.Sprintf("%s %d", model, answer.StatusCode), 1)
		time.Sleep(pace)
		return nil
	})
	return fmt.Sprint(count.frames)
}
