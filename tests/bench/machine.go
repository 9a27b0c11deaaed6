//go:build linux

package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the CPU time of all threads that a process has and had, in
// nanoseconds: finer than the hundredths of a second in /proc/PID/stat.
func cpuTime(pid int) (time.Duration, error) {
	// clock_getcpuclockid(3): the id of a process's clock is made of its pid
	// and CPUCLOCK_SCHED (2).
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|2, &t); err != nil {
		return 0, fmt.Errorf("reading the CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// cpu reads the CPU clock of each process, in microseconds.
func (s *system) cpu() (map[string]float64, error) {
	times := map[string]float64{}
	for _, p := range s.Processes {
		t, err := cpuTime(p.Pid())
		if err != nil {
			return nil, err
		}
		times[p.name] = float64(t) / float64(time.Microsecond)
	}
	return times, nil
}

// machineTicks returns what all processors together have done since the machine
// started, and what its host has withheld.
func machineTicks() (busy, stolen time.Duration, err error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("reading the machine's CPU time: %w", err)
	}
	return parseTicks(string(b))
}

// parseTicks reads "cpu user nice system idle iowait irq softirq steal …". The unit
// is USER_HZ, which is 100 on all platforms of Linux that Go supports.
func parseTicks(text string) (busy, stolen time.Duration, err error) {
	const tick = 10 * time.Millisecond
	var n [8]time.Duration
	if _, err := fmt.Sscanf(text, "cpu %d %d %d %d %d %d %d %d", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7]); err != nil {
		return 0, 0, fmt.Errorf("reading /proc/stat: %w", err)
	}
	return (n[0] + n[1] + n[2] + n[5] + n[6]) * tick, n[7] * tick, nil
}

// ownTime returns the CPU time of this process and of its children that have ended.
func ownTime() (sum time.Duration) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}

// noise returns a function that returns how much of the machine others have used
// since, and how much its host has withheld, both in percent of all processors.
// Figures of a busy machine mean little. All children must have ended.
func noise() (func() (foreign, stolen float64, err error), error) {
	began, ours := time.Now(), ownTime()
	busy, stolen, err := machineTicks()
	return func() (float64, float64, error) {
		all := float64(time.Since(began)) * float64(runtime.NumCPU()) / 100
		busyNow, stolenNow, err := machineTicks()
		return max(0, float64(busyNow-busy-(ownTime()-ours))/all), float64(stolenNow-stolen) / all, err
	}, err
}

// machine names the machine.
func machine() string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease") // each Linux has both
	cpus, _ := os.ReadFile("/proc/cpuinfo")
	_, name, _ := strings.Cut(string(cpus), "model name\t: ")
	name, _, _ = strings.Cut(name, "\n")
	return fmt.Sprintf("%s, %d cores, Linux %s, %s", name, runtime.NumCPU(), strings.TrimSpace(string(kernel)), runtime.Version())
}
