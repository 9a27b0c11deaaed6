package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/postern-dev/postern/tests/rig"
)

// memory is what a process occupies, in KB: RSS counts pages that it shares
// with others in full, PSS in part.
type memory struct{ RSS, PSS int }

// memoryOf reads the memory of a process.
func memoryOf(p *rig.Process) (m memory, err error) {
	if m.RSS, err = p.Kilobytes("smaps_rollup", "Rss:"); err == nil {
		m.PSS, err = p.Kilobytes("smaps_rollup", "Pss:")
	}
	return m, err
}

// ticks is the CPU time of the whole machine since it started.
type ticks struct{ Busy, Stolen time.Duration }

// tick is the unit of /proc/stat: USER_HZ is 100 on all platforms of Linux that
// Go supports.
const tick = 10 * time.Millisecond

// machineTicks reads what all processors together have done.
func machineTicks() (ticks, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return ticks{}, fmt.Errorf("reading the machine's CPU time: %w", err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return parseTicks(line)
}

// parseTicks reads "cpu user nice system idle iowait irq softirq steal …".
func parseTicks(line string) (ticks, error) {
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return ticks{}, fmt.Errorf("the first line of /proc/stat is unknown: %q", line)
	}
	var t ticks
	for i, field := range fields[1:9] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return ticks{}, fmt.Errorf("reading /proc/stat: %w", err)
		}
		switch d := time.Duration(n) * tick; i {
		case 0, 1, 2, 5, 6:
			t.Busy += d
		case 7:
			t.Stolen += d
		}
	}
	return t, nil
}

// ownTime returns the CPU time of this process.
func ownTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// kernel returns the kernel's version.
func kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "of unknown version"
	}
	return strings.TrimSpace(string(b))
}

// processor returns the processor's name.
func processor() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}
