package memory

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// burst leaves garbage that Go does not collect.
func burst(bytes int) {
	for range bytes >> 20 {
		b := make([]byte, 1<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		runtime.KeepAlive(b)
	}
}

// Memory is returned within two looks of a burst, and only once.
func TestReleaseAfterBurst(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go Release(ctx, AfterBurst())
		pass := func() uint64 {
			time.Sleep(2*IdleLook + time.Second)
			synctest.Wait()
			return held()
		}
		kept := pass()
		burst(int(kept) + 128<<20)
		if full := held(); full < kept+128<<20 {
			t.Fatalf("the burst took %d MiB", (full-kept)>>20)
		}
		if after := pass(); after > kept+16<<20 {
			t.Errorf("%d MiB are held after a burst, %d MiB before it", after>>20, kept>>20)
		}
		cycles := read("/gc/cycles/total:gc-cycles")
		burst(1 << 20)
		pass()
		if more := read("/gc/cycles/total:gc-cycles") - cycles; more > 0 {
			t.Errorf("%d collections without a burst", more)
		}
	})
}

// While Go collects by itself, nothing is due.
func TestReleaseLeavesLoadAlone(t *testing.T) {
	due := AfterBurst()
	for range 3 {
		runtime.GC()
		if due(1<<40, 1) {
			t.Error("due although a collection has just run")
		}
	}
	if !due(1<<40, 1) {
		t.Error("not due although no collection has run")
	}
}
