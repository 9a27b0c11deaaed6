package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
)

// pairingReporter reports the progress of a pairing: to the log, or on a terminal.
type pairingReporter struct {
	logger *slog.Logger
	w      io.Writer // the terminal; nil: use logger
	shown  string    // the request for approval, which is shown only once
}

// report logs an event, or writes whole lines.
func (r *pairingReporter) report(lines string, level slog.Level, message string, attributes ...any) {
	if r.w == nil {
		r.logger.Log(context.Background(), level, message, attributes...)
		return
	}
	fmt.Fprint(r.w, text.Lines(lines))
}

func (r *pairingReporter) warn(text string) {
	r.report("Warning: "+text+"\n", slog.LevelWarn, text)
}

func (r *pairingReporter) found(origin string, gateway dial.Gateway) {
	r.report(fmt.Sprintf("Pairing with %s (tunnels at %s)\n", origin, gateway.Server),
		slog.LevelInfo, "pairing", "gateway", origin, "server", gateway.Server)
}

func (r *pairingReporter) paired(path string) {
	r.report(fmt.Sprintf("Approved. This machine is paired; its token is in %s\nStart it later with: connector run "+
		"--config %[1]s\n", path),
		slog.LevelInfo, "paired", "config", path)
}

func (r *pairingReporter) interrupted(reason, fix string, pause time.Duration) {
	attributes, advice := []any{"reason", reason, "retry_in", pause.Round(10 * time.Millisecond).String()}, ""
	if fix != "" {
		attributes, advice = append(attributes, "fix", fix), "; "+fix
	}
	r.report(fmt.Sprintf("Interrupted: %s%s. Trying again in %v.\n", strings.TrimRight(reason, "."), advice,
		max(pause, time.Second).Round(time.Second)),
		slog.LevelWarn, "pairing interrupted", attributes...)
}

func (r *pairingReporter) pending(p link.Pending, console string) {
	request := "Approve this device on the gateway's machine with `caddy gateway pairing approve CODE`"
	if console != "" {
		request = "Approve this machine at " + console
	}
	text := fmt.Sprintf("\n  %s\n  if it shows this fingerprint:  %s\n\n", request, p.Fingerprint)
	if text == r.shown {
		text = ""
	} else {
		r.shown = text
	}
	text += fmt.Sprintf("Waiting for approval until %s\n", p.ExpiresAt.Local().Format(time.TimeOnly))
	r.report(text, slog.LevelInfo, "waiting for approval", "fingerprint", p.Fingerprint, "console", console, "expires_at",
		p.ExpiresAt)
}
