package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// TestSocketOfASlowConnector: a connector that listens but answers too late keeps its socket.
func TestSocketOfASlowConnector(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the folder is another")
	}
	dir, err := os.MkdirTemp("", "slow")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "run", "s.sock")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	first, err := openSocket(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := openSocket(ctx, path)
	if err == nil {
		second.Close()
	}
	if !errors.As(err, new(*busyError)) {
		t.Errorf("error %v", err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the socket is gone: %v", err)
	}
	conn.Close()
}
