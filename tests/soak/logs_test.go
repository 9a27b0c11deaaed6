package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestWithin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log := `not JSON
{"ts":1000005.5,"level":"info","msg":"early"}
{"ts":1000010.5,"level":"info","msg":"of con_a"}
{"ts":1000010.6,"level":"info","msg":"of con_b"}
{"time":"1970-01-12T13:46:51Z","level":"WARN","msg":"of con_a, a connector's"}
{"ts":1000099,"level":"info","msg":"late, of con_a"}
`
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	about := func(line []byte) bool { return bytes.Contains(line, []byte("con_a")) }
	got := within(path, at(10), at(12), about)
	if len(got) != 2 || !strings.Contains(got[0], `"of con_a"`) || !strings.Contains(got[1], "a connector's") {
		t.Errorf("lines %q", got)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat(`{"ts":1000010.5,"msg":"of con_a"}`+"\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := within(path, at(10), at(12), about); len(got) != maxLogLines {
		t.Errorf("%d lines", len(got))
	}
}

func TestKeyring(t *testing.T) {
	k := &keyring{keys: []*key{{id: "a"}, {id: "b"}, {id: "c"}}}
	if got := k.take(); got == nil || got.id != "b" {
		t.Errorf("took %v", got)
	}
	if got := k.take(); got != nil {
		t.Errorf("took %v of two", got.id)
	}
	gone := &key{revoked: at(5)}
	if gone.revokedBy(at(4)) || !gone.revokedBy(at(5)) || (&key{}).revokedBy(time.Now()) {
		t.Error("a key is revoked from its revocation on, and only then")
	}
}

func TestDeploymentHomes(t *testing.T) {
	d := &deployment{homes: []home{
		{connectors: []int{1}, from: at(0), until: at(10)},
		{connectors: []int{2}, from: at(9), until: at(20)},
		{connectors: []int{3}, from: at(19)},
	}}
	for _, c := range []struct {
		from, until float64
		want        int
	}{{1, 2, 1}, {1, 9.5, 2}, {11, 12, 1}, {11, 30, 2}, {1, 30, 3}, {25, 30, 1}} {
		if got := d.during(at(c.from), at(c.until)); len(got) != c.want {
			t.Errorf("from %v to %v it led to %v", c.from, c.until, got)
		}
	}
}
