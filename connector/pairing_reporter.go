package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
)

// pairingReporter reports how a pairing goes on.
type pairingReporter interface {
	warn(text string)
	found(origin string, gateway dial.Gateway)
	pending(p link.Pending, console string)
	interrupted(reason, fix string, pause time.Duration)
	quiet() // ends what goes on in the background
	paired(path string)
}

// logReporter reports to the log.
type logReporter struct{ logger *slog.Logger }

func (v logReporter) warn(text string) { v.logger.Warn(text) }
func (v logReporter) quiet()           {}

func (v logReporter) found(origin string, gateway dial.Gateway) {
	v.logger.Info("pairing", "gateway", origin, "server", gateway.Server)
}

func (v logReporter) pending(p link.Pending, console string) {
	v.logger.Info("waiting for approval", "fingerprint", p.Fingerprint, "console", console, "expires_at", p.ExpiresAt)
}

func (v logReporter) interrupted(reason, fix string, pause time.Duration) {
	attributes := []any{"reason", reason, "retry_in", pause.Round(10 * time.Millisecond).String()}
	if fix != "" {
		attributes = append(attributes, "fix", fix)
	}
	v.logger.Warn("pairing is interrupted", attributes...)
}

func (v logReporter) paired(path string) { v.logger.Info("paired", "config", path) }

// terminalReporter reports to a person, with the time that is left counted down
// on the last line. Its methods are called one after the other.
type terminalReporter struct {
	w       io.Writer
	now     func() time.Time
	stop    chan struct{} // ends the countdown; nil: there is none
	stopped sync.WaitGroup
	shown   string // as a whole: fingerprint and address, not to be repeated
	width   int    // of the countdown's line as it stands
}

func newTerminalReporter(w io.Writer) *terminalReporter {
	return &terminalReporter{w: w, now: time.Now}
}

// say writes whole lines, in place of the countdown.
func (v *terminalReporter) say(format string, args ...any) {
	v.quiet()
	fmt.Fprint(v.w, printable(fmt.Sprintf(format, args...)))
}

func (v *terminalReporter) warn(text string) { v.say("Warning: %s\n", text) }

func (v *terminalReporter) found(origin string, gateway dial.Gateway) {
	v.say("Pairing with %s (tunnels at %s)\n", origin, gateway.Server)
}

func (v *terminalReporter) pending(p link.Pending, console string) {
	v.quiet()
	where := "Approve this machine on the gateway: caddy gateway pairing approve CODE"
	if console != "" {
		where = "Approve this machine at " + console
	}
	text := fmt.Sprintf("\n  %s\n  if the fingerprint there is the same:  %s\n\n", where, p.Fingerprint)
	if text != v.shown {
		v.shown = text
		fmt.Fprint(v.w, text)
	}
	stop := make(chan struct{})
	v.stop = stop
	v.stopped.Go(func() { v.countDown(p.ExpiresAt, stop) })
}

// countDown rewrites its line every second.
func (v *terminalReporter) countDown(end time.Time, stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		left := max(end.Sub(v.now()), 0).Round(time.Second)
		v.line(fmt.Sprintf("Waiting for approval, %d:%02d left", int(left.Minutes()), int(left.Seconds())%60))
		select {
		case <-stop:
			v.line("")
			return
		case <-tick.C:
		}
	}
}

// line rewrites the last line. Spaces over the rest of the old one do what an
// escape sequence would, on any terminal.
func (v *terminalReporter) line(text string) {
	fmt.Fprintf(v.w, "\r%s%s", text, strings.Repeat(" ", max(v.width-len(text), 0)))
	if text == "" {
		fmt.Fprint(v.w, "\r")
	}
	v.width = len(text)
}

func (v *terminalReporter) quiet() {
	if v.stop != nil {
		close(v.stop)
		v.stop = nil
	}
	v.stopped.Wait()
}

func (v *terminalReporter) interrupted(reason, fix string, pause time.Duration) {
	if fix != "" {
		fix = "; " + fix
	}
	v.say("Interrupted: %s%s. Trying again in %v.\n", strings.TrimRight(reason, "."), fix, max(pause, time.Second).Round(time.Second))
}

func (v *terminalReporter) paired(path string) {
	v.say("Approved. This machine is paired; its token is in %s\nFrom now on this starts it: connector run --config %[1]s\n", path)
}
