package main

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func TestParseCongestion(t *testing.T) {
	for text, want := range map[string]string{
		"ESTAB 0 65 192.0.2.2:33218 203.0.113.80:443\n\t bbr wscale:10,10 rto:224 bbr:(bw:1bps)": bbr,
		"ESTAB 0 0 10.99.1.1:443 10.99.1.2:5\n\t ts sack ecn ecnseen cubic wscale:7,7 rto:201":   cubic,
	} {
		if got, err := parseCongestion(text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := parseCongestion(""); err == nil {
		t.Error("no connection has a congestion control")
	}
}

// A lab that cannot be made is an error, and what was made is undone.
func TestLabFails(t *testing.T) {
	s, undone := &stage{}, false
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Cleanup(func() { undone = true })
		s.Fatalf("no %s", "device")
		t.Error("Fatalf returns")
	}()
	<-ended
	s.tear()
	if s.failure == nil || !strings.Contains(s.failure.Error(), "no device") || !undone {
		t.Errorf("failure %v, undone %t", s.failure, undone)
	}
}

// splice carries both ways, also what came before, and ends with either side.
func TestSplice(t *testing.T) {
	near, client := net.Pipe()
	far, server := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		splice(near, io.MultiReader(strings.NewReader("early "), near), far)
	}()
	got := make([]byte, len("early late"))
	go func() { _, _ = client.Write([]byte("late")) }()
	if _, err := io.ReadFull(server, got); err != nil || string(got) != "early late" {
		t.Errorf("there arrives %q, %v", got, err)
	}
	go func() { _, _ = server.Write([]byte("back")) }()
	if _, err := io.ReadFull(client, got[:4]); err != nil || string(got[:4]) != "back" {
		t.Errorf("back comes %q, %v", got[:4], err)
	}
	client.Close()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it does not end with the client")
	}
	_ = server.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := server.Read(got); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the other side is told %v", err)
	}
}
