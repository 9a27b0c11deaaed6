package main

import (
	"net"
	"strconv"
	"strings"
	"time"
)

// notifier reports this process to systemd, by the protocol of sd_notify(3).
// Without systemd it does nothing.
type notifier struct {
	socket string
	every  time.Duration // between watchdog messages; 0: no watchdog
}

// newNotifier reads the variables that systemd sets for this process.
func newNotifier(getenv func(string) string, pid int) *notifier {
	n := &notifier{socket: getenv("NOTIFY_SOCKET")}
	if strings.HasPrefix(n.socket, "@") { // abstract socket of Linux
		n.socket = "\x00" + n.socket[1:]
	}
	microseconds, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if owner := getenv("WATCHDOG_PID"); err == nil && microseconds > 0 && (owner == "" || owner == strconv.Itoa(pid)) {
		n.every = time.Duration(microseconds) * time.Microsecond / 4
	}
	return n
}

// send sends assignments like READY=1. Failures are ignored.
func (n *notifier) send(assignments ...string) {
	if n.socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte(strings.Join(assignments, "\n")))
}
