package main

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"
)

// echo answers packets with what they say and the address that they came from.
func echo(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = c.WriteTo([]byte(string(b[:n])+" "+from.String()), from) // the test notices what is missing
		}
	}()
	return c.LocalAddr().String()
}

// ask sends packets until one is answered, and returns how the other end sees
// who sends. It takes no late answer to an earlier question.
func ask(c net.Conn, limit time.Duration) (string, error) {
	b := make([]byte, 1500)
	question := rand.Text()
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if _, err := c.Write([]byte(question)); err != nil {
			return "", err
		}
		if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			return "", err
		}
		for {
			n, err := c.Read(b)
			if err != nil {
				break
			}
			if who, ok := strings.CutPrefix(string(b[:n]), question+" "); ok {
				return who, nil
			}
		}
	}
	return "", fmt.Errorf("no answer within %v", limit)
}

func TestRelay(t *testing.T) {
	r, err := newRelay(echo(t), mathrand.New(mathrand.NewPCG(1, 1)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	c, err := net.Dial("udp", r.address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const patience = 30 * time.Second
	first, err := ask(c, patience)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := ask(c, patience); err != nil || again != first {
		t.Errorf("the same flow is seen as %s, then %s (%v)", first, again, err)
	}
	r.rebind()
	if after, err := ask(c, patience); err != nil || after == first {
		t.Errorf("after a rebind it is seen as %s as before (%v)", after, err)
	}
	r.set(0, 0, true)
	if _, err := ask(c, 500*time.Millisecond); err == nil {
		t.Error("a dark path carries packets")
	}
	r.set(0.5, 0, false)
	if _, err := ask(c, patience); err != nil {
		t.Errorf("of a path that loses half: %v", err)
	}
	r.set(1, 0, false)
	if _, err := ask(c, 500*time.Millisecond); err == nil {
		t.Error("a path that loses all carries packets")
	}
	r.set(0, 20*time.Millisecond, false)
	start := time.Now()
	if _, err := ask(c, patience); err != nil || time.Since(start) < 40*time.Millisecond {
		t.Errorf("a packet there and back took %v (%v)", time.Since(start), err)
	}
}
