package main

import (
	"os"
	"testing"
	"time"
)

func TestParseTicks(t *testing.T) {
	got, err := parseTicks("cpu  100 1 20 5000 7 3 4 9 0 0")
	if err != nil {
		t.Fatal(err)
	}
	want := ticks{Busy: 1280 * time.Millisecond, Stolen: 90 * time.Millisecond}
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, wrong := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu a b c d e f g h"} {
		if _, err := parseTicks(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

func TestKilobytes(t *testing.T) {
	page := "7f00-7fff ---p 00000000 00:00 0 [rollup]\nRss:               47128 kB\nPss:               28318 kB\nPss_Dirty: 5 kB\n"
	if n, err := kilobytes(page, "Pss:"); n != 28318 || err != nil {
		t.Errorf("Pss: %d, %v", n, err)
	}
	if _, err := kilobytes(page, "Swap:"); err == nil {
		t.Error("a missing line is no error")
	}
}

func TestMemoryOfThisProcess(t *testing.T) {
	m, err := memoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if m.RSS < 1000 || m.PSS < 1000 || m.PSS > m.RSS {
		t.Errorf("memory %+v", m)
	}
}

func TestParseHeap(t *testing.T) {
	page := []byte("heap profile: 1: 2 [3: 4] @ heap/1048576\n\n# runtime.MemStats\n# Alloc = 5\n# TotalAlloc = 600\n# Mallocs = 70\n# HeapAlloc = 8\n# Stack = 9 / 10\n")
	got, err := parseHeap(page)
	if err != nil {
		t.Fatal(err)
	}
	if want := (heap{Mallocs: 70, Bytes: 600, Live: 8, Stacks: 9}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := parseHeap([]byte("not a page")); err == nil {
		t.Error("another page is accepted")
	}
}
