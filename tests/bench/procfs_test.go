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

func TestCPUTimeGrows(t *testing.T) {
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
		continue
	}
	after, err := cpuTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if after <= before {
		t.Errorf("CPU time went from %v to %v", before, after)
	}
	if _, err := cpuTime(1 << 23); err == nil {
		t.Error("a process that is not there has CPU time")
	}
}
