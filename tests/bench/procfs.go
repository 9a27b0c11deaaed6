package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// memory is what a process occupies, in KB: RSS counts pages that it shares
// with others in full, PSS in part.
type memory struct{ RSS, PSS int }

// memoryOf reads the memory of a process.
func memoryOf(pid int) (memory, error) {
	path := fmt.Sprintf("/proc/%d/smaps_rollup", pid)
	b, err := os.ReadFile(path)
	if err != nil {
		return memory{}, fmt.Errorf("reading the memory of a process: %w", err)
	}
	var m memory
	if m.RSS, err = kilobytes(string(b), "Rss:"); err != nil {
		return memory{}, fmt.Errorf("reading %s: %w", path, err)
	}
	if m.PSS, err = kilobytes(string(b), "Pss:"); err != nil {
		return memory{}, fmt.Errorf("reading %s: %w", path, err)
	}
	return m, nil
}

// kilobytes returns the number of the line that begins with the label, as in
// "Rss:    1234 kB".
func kilobytes(text, label string) (int, error) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == label && fields[2] == "kB" {
			return strconv.Atoi(fields[1])
		}
	}
	return 0, fmt.Errorf("there is no line %q", label)
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
