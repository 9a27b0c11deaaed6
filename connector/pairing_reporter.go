package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
)

// pairingReporter reports the progress of a pairing: to the log, or on a terminal with
// a countdown in the last line. Its methods must not be called concurrently.
type pairingReporter struct {
	logger *slog.Logger
	w      io.Writer // the terminal; nil: use logger
	now    func() time.Time

	stop    chan struct{} // ends the countdown; nil: none is running
	stopped sync.WaitGroup
	shown   string // fingerprint and address, shown only once
	width   int    // of the countdown's current line
}

func newTerminalReporter(w io.Writer) *pairingReporter {
	return &pairingReporter{w: w, now: time.Now}
}

// report logs an event, or writes whole lines in place of the countdown.
func (v *pairingReporter) report(lines string, level slog.Level, message string, attributes ...any) {
	if v.w == nil {
		v.logger.Log(context.Background(), level, message, attributes...)
		return
	}
	v.quiet()
	fmt.Fprint(v.w, printable(lines))
}

func (v *pairingReporter) warn(text string) {
	v.report("Warning: "+text+"\n", slog.LevelWarn, text)
}

func (v *pairingReporter) found(origin string, gateway dial.Gateway) {
	v.report(fmt.Sprintf("Pairing with %s (tunnels at %s)\n", origin, gateway.Server),
		slog.LevelInfo, "pairing", "gateway", origin, "server", gateway.Server)
}

func (v *pairingReporter) paired(path string) {
	v.report(fmt.Sprintf("Approved. This machine is paired; its token is in %s\nStart it later with: connector run --config %[1]s\n", path),
		slog.LevelInfo, "paired", "config", path)
}

func (v *pairingReporter) interrupted(reason, fix string, pause time.Duration) {
	attributes, advice := []any{"reason", reason, "retry_in", pause.Round(10 * time.Millisecond).String()}, ""
	if fix != "" {
		attributes, advice = append(attributes, "fix", fix), "; "+fix
	}
	v.report(fmt.Sprintf("Interrupted: %s%s. Trying again in %v.\n", strings.TrimRight(reason, "."), advice, max(pause, time.Second).Round(time.Second)),
		slog.LevelWarn, "pairing interrupted", attributes...)
}

func (v *pairingReporter) pending(p link.Pending, console string) {
	where := "Approve this device on the gateway's machine with `postern gateway pairing approve CODE`"
	if console != "" {
		where = "Approve this machine at " + console
	}
	text := fmt.Sprintf("\n  %s\n  if it shows this fingerprint:  %s\n\n", where, p.Fingerprint)
	if text == v.shown {
		text = ""
	} else {
		v.shown = text
	}
	v.report(text, slog.LevelInfo, "waiting for approval", "fingerprint", p.Fingerprint, "console", console, "expires_at", p.ExpiresAt)
	if v.w != nil {
		stop := make(chan struct{})
		v.stop = stop
		v.stopped.Go(func() { v.countDown(p.ExpiresAt, stop) })
	}
}

// countDown rewrites its line every second.
func (v *pairingReporter) countDown(end time.Time, stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		left := max(end.Sub(v.now()), 0).Round(time.Second)
		v.line(fmt.Sprintf("Waiting for approval, expires in %d:%02d", int(left.Minutes()), int(left.Seconds())%60))
		select {
		case <-stop:
			v.line("")
			return
		case <-tick.C:
		}
	}
}

// line rewrites the last line. Spaces overwrite the rest of the old one on any terminal.
func (v *pairingReporter) line(text string) {
	fmt.Fprintf(v.w, "\r%s%s", text, strings.Repeat(" ", max(v.width-len(text), 0)))
	if text == "" {
		fmt.Fprint(v.w, "\r")
	}
	v.width = len(text)
}

func (v *pairingReporter) quiet() {
	if v.stop != nil {
		close(v.stop)
		v.stop = nil
	}
	v.stopped.Wait()
}
