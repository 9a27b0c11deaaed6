package main

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestProcessors(t *testing.T) {
	var p processors
	now, used := time.Now(), time.Duration(0)
	after := func(d time.Duration) (logged bool) {
		now, used = now.Add(processorInterval), used+d
		return p.measure(used, now, runtime.NumCPU()-1)
	}
	usable := time.Duration(runtime.NumCPU() - 1)
	if usable == 0 {
		usable = 1 // without a second processor, none can be added
		if after(0); after(usable*processorInterval) || p.full.Load() {
			t.Error("the only processor is reported as full")
		}
		return
	}
	if after(time.Hour) {
		t.Error("the time before the start was counted")
	}
	if after(usable*processorInterval*7/10) || p.full.Load() {
		t.Error("seven tenths are reported as full")
	}
	if !after(usable*processorInterval*8/10) || !p.full.Load() {
		t.Error("eight tenths are not reported")
	}
	for range processorPause/processorInterval - 1 {
		if after(usable * processorInterval) {
			t.Fatal("logged twice within an hour")
		}
	}
	if !after(usable * processorInterval) {
		t.Error("not logged again after an hour")
	}
	if after(0); p.full.Load() {
		t.Error("still full")
	}
	if p.measure(1<<62, now.Add(processorInterval), runtime.NumCPU()) {
		t.Error("advice to use more processors than there are")
	}
}

func TestProcessorTime(t *testing.T) {
	for before := processorTime(); processorTime() <= before; {
		_ = strings.Repeat("x", 1<<20)
	}
}

func TestFullProcessorIsShown(t *testing.T) {
	var b strings.Builder
	writeReport(&b, report{ProcessorFull: true}, time.Now())
	if !strings.Contains(b.String(), "processor  almost full: "+processorFix) {
		t.Error(b.String())
	}
}
