//go:build !windows

package up

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// newChild returns a child that runs a script.
func newChild(t *testing.T, script string) *child {
	t.Helper()
	return &child{Process: Process{Name: "edge-2", Log: filepath.Join(t.TempDir(), "edge-2.log")}, argv: []string{"sh", "-c", script}, grace: 100 * time.Millisecond}
}

// A child that ends by itself is reported, with the command that starts it again.
func TestChildEnds(t *testing.T) {
	u := New(Options{Edges: 3})
	c := newChild(t, "exit 3")
	c.environment = []string{"A=it's"}
	if err := u.start(c); err != nil {
		t.Fatal(err)
	}
	if ended := <-u.ended; ended != c {
		t.Errorf("%s has ended", ended.Name)
	}
	text := c.ending()
	for _, want := range []string{"edge-2 (pid ", "has ended: exit status 3. Its log is " + c.Log, `  env 'A=it'\''s' sh -c 'exit 3'` + "\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
}

// A child that does not become ready is an error with the end of its log.
func TestChildDoesNotStart(t *testing.T) {
	u := New(Options{Edges: 3})
	c := newChild(t, "echo the reason >&2; exit 1")
	if err := u.start(c); err != nil {
		t.Fatal(err)
	}
	err := c.await(t.Context(), func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "edge-2 has ended while it started (exit status 1)") || !strings.HasSuffix(err.Error(), "\nthe reason") {
		t.Errorf("error = %v", err)
	}
	c.argv = []string{filepath.Join(t.TempDir(), "none")}
	if err := u.start(c); err == nil || !strings.Contains(err.Error(), "starting edge-2") {
		t.Errorf("error = %v", err)
	}
}

// A child that ignores SIGTERM is killed.
func TestChildHangs(t *testing.T) {
	u := New(Options{Edges: 3})
	c := newChild(t, `trap "" TERM; echo ready; while :; do sleep 0.05; done`)
	if err := u.start(c); err != nil {
		t.Fatal(err)
	}
	if err := c.await(t.Context(), func() bool { return c.tail() == "ready" }); err != nil {
		t.Fatal(err)
	}
	stopAll([]*child{c})
	if got := c.reason(); got != "signal: killed" {
		t.Errorf("it has ended: %s", got)
	}
	select {
	case <-u.ended:
		t.Error("a child that was stopped is reported")
	default:
	}
}

// Only etcd of a version that a cluster can use is found.
func TestFindEtcd(t *testing.T) {
	dir := t.TempDir()
	program := func(name, script string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tt := range []struct{ name, path, want string }{
		{"new", program("new", "echo etcd Version: 3.6.0"), ""},
		{"newer", program("newer", "echo etcd Version: 4.0.1-rc.0; echo Git SHA: 1"), ""},
		{"old", program("old", "echo etcd Version: 3.5.21"), "is etcd 3.5, and a cluster needs 3.6 or later.\nUnpack a release"},
		{"another", program("another", "echo 1.0"), "is not etcd"},
		{"failing", program("failing", "echo etcd Version: 3.6.0; exit 1"), "is not etcd"},
		{"missing", filepath.Join(dir, "none"), "finding the program of --etcd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path, err := findEtcd(t.Context(), tt.path)
			if tt.want == "" && (err != nil || path != tt.path) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("path = %s, error = %v, want %q", path, err, tt.want)
			}
		})
	}
	t.Setenv("PATH", dir)
	if _, err := findEtcd(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "etcd 3.6 or later, which is not in PATH") {
		t.Errorf("error = %v", err)
	}
	program("etcd", "echo etcd Version: 3.10.2")
	if path, err := findEtcd(t.Context(), ""); err != nil || path != filepath.Join(dir, "etcd") {
		t.Errorf("path = %s, error = %v", path, err)
	}
}
