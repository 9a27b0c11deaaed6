package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/tty"
	"github.com/postern-dev/postern/connector/upstream"
)

// selector contains the flags that select a connector.
type selector struct{ config, socket string }

func (s *selector) flags(command *cobra.Command) {
	command.Flags().StringVarP(&s.config, "config", "c", "",
		"configuration `FILE` of the connector (default: as for `connector run`, then the service)")
	socketFlag(command, &s.socket)
}

func statusCommand(sys system) *cobra.Command {
	var selected selector
	var asJSON bool
	command := &cobra.Command{
		Use:   "status [--json]",
		Short: "Show what the connector on this machine is doing",
		Long: `Shows the status of the connector on this machine: its tunnel, its model servers,
and the results of its last requests. The contents of requests and answers are not
included.

Exit codes: 0 the tunnel is up, 1 it is down, or no connector is running.`,
		Example: `  connector status
  connector status --json --config connector.json
  HEALTHCHECK CMD ["connector", "status"]      in a Dockerfile`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			r, _, err := findConnector(command.Context(), sys, selected)
			if err != nil {
				return err
			}
			if asJSON {
				if err := printJSON(sys.stdout, r); err != nil {
					return failed(err)
				}
			} else {
				writeReport(sys.stdout, r, time.Now())
			}
			if r.State != agent.StateOnline {
				return failed(fmt.Errorf("the tunnel is not up: %s", oneLine(r.Status)))
			}
			return nil
		},
	}
	selected.flags(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

func waitCommand(sys system) *cobra.Command {
	var selected selector
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "wait [--timeout TIME]",
		Short: "Wait until the connector's tunnel is up",
		Long: `Waits until the tunnel of the connector on this machine is up, such as in a script. The
connector need not be running yet.

Exit codes: 0 the tunnel is up, 1 timed out.`,
		Example: `  connector run & connector wait --timeout 30s && echo ready`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, stop := sys.signals(command.Context())
			defer stop()
			return waitOnline(ctx, sys, selected, timeout)
		},
	}
	selected.flags(command)
	command.Flags().DurationVar(&timeout, "timeout", time.Minute, "`TIME` limit for waiting")
	return command
}

// waitOnline polls, as the connector may not be running yet.
func waitOnline(ctx context.Context, sys system, selected selector, timeout time.Duration) error {
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	for {
		r, _, err := findConnector(ctx, sys, selected)
		switch {
		case err == nil && r.State == agent.StateOnline:
			return nil
		case err == nil:
			err = errors.New(oneLine(r.Status))
		case !errors.As(err, new(*exitError)):
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-limit.C:
			return failed(fmt.Errorf("the tunnel is still down after %v: %w", timeout, err))
		case <-ctx.Done():
			return failed(fmt.Errorf("interrupted; the tunnel is down: %w", err))
		}
	}
}

func reloadCommand(sys system) *cobra.Command {
	var selected selector
	command := &cobra.Command{
		Use:   "reload",
		Short: "Reload the configuration of the connector on this machine",
		Long: `Makes the connector on this machine reload its configuration, as SIGHUP does. No
request is lost. Keys and addresses of model servers change at once. Any other
change takes a new tunnel, which replaces the old one. The command waits for it. If
it is not up within 30 seconds, or the token is rejected, the old configuration
stays. Without a tunnel, the new configuration is used at once.

Exit codes: 0 the new configuration is in use, 1 no connector is running, 2 the new
configuration is invalid or does not connect, and the old one stays.`,
		Example: `  connector reload
  connector reload --config connector.json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			r, socket, err := findConnector(command.Context(), sys, selected)
			if err != nil {
				return err
			}
			var answer reloadAnswer
			if err := ask(command.Context(), socket, http.MethodPost, "/reload", reloadTimeout, &answer); err != nil {
				return failed(err)
			}
			if answer.Error != "" {
				return fmt.Errorf("not reloaded; the old configuration stays: %s", answer.Error)
			}
			fmt.Fprintf(sys.stdout, "Process %d reloaded %s\n", r.PID, r.Config)
			return nil
		},
	}
	selected.flags(command)
	return command
}

func oneLine(s agent.Status) string {
	switch {
	case s.State == agent.StateOnline && s.Tunnel != nil:
		return fmt.Sprintf("online at %s over %s%s; %s", s.Server, s.Tunnel.Transport, legsText(s.Legs), requestsText(s))
	case s.State == agent.StateDraining:
		return "draining; " + requestsText(s)
	case s.State == agent.StateStopped:
		return "stopped"
	case s.Problem != nil:
		if s.State == agent.StateWaiting {
			return fmt.Sprintf("cannot connect to %s: %s", s.Server, s.Problem)
		}
		return fmt.Sprintf("%s to %s; last try: %s", s.State, s.Server, s.Problem)
	default:
		return fmt.Sprintf("%s to %s", s.State, s.Server)
	}
}

// legsText returns how many tunnels to a cluster are up, and to which edges.
func legsText(legs []agent.LegStatus) string {
	if len(legs) == 0 {
		return ""
	}
	var edges []string
	for _, l := range legs {
		if l.Tunnel != nil {
			edges = append(edges, l.Edge)
		}
	}
	return fmt.Sprintf(", %d of %d tunnels (%s)", len(edges), len(legs), strings.Join(edges, ", "))
}

func requestsText(s agent.Status) string {
	text := fmt.Sprintf("requests: %d running, %d served", s.Running, s.Served)
	if s.Failed > 0 {
		text += fmt.Sprintf(", %d failed", s.Failed)
	}
	return text
}

// writeReport prints what `connector status` shows.
func writeReport(w io.Writer, r report, now time.Time) {
	writeStatus(w, r.Status, now)
	config := r.Config
	if config == "" {
		config = "the environment"
	}
	fmt.Fprintf(w, "process    %d, version %s, running for %s, configured by %s\n", r.PID, r.Version,
		short(now.Sub(r.Started)), config)
	if r.ProcessorFull {
		fmt.Fprintln(w, "processor  almost full: "+processorFix)
	}
}

// piece is a part of a line.
type piece struct {
	tone tty.Tone
	text string
}

const plain, faint, good, warning, bad = tty.Plain, tty.Faint, tty.Good, tty.Warning, tty.Bad

func short(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// writeStatus prints the status of an agent.
func writeStatus(w io.Writer, s agent.Status, now time.Time) {
	write := func(label string, pieces ...piece) {
		for _, p := range append([]piece{{faint, fmt.Sprintf("%-11s", label)}}, pieces...) {
			fmt.Fprint(w, tty.Paint(w, p.tone, text.Line(p.text)))
		}
		fmt.Fprintln(w)
	}
	write("state", stateText(s, now)...)
	gateway := []piece{{plain, s.Server}}
	if s.Tunnel != nil {
		gateway = append(gateway, piece{faint, "  version " + s.Tunnel.GatewayVersion})
	}
	write("gateway", gateway...)
	if s.Tunnel != nil && len(s.Legs) == 0 {
		write("tunnel", tunnelPieces(s.Tunnel)...)
	}
	label := "tunnel"
	for _, l := range s.Legs {
		write(label, legPieces(l, now)...)
		label = ""
	}
	if p := s.Problem; p != nil {
		write("reason", piece{warning, p.Reason})
		if p.Fix != "" {
			write("fix", piece{plain, p.Fix})
		}
	}
	label = "upstream"
	for _, u := range s.Upstreams {
		pieces := []piece{{plain, u.Name}, {faint, "  " + u.Address}, upstreamState(u)}
		if u.OneModel {
			pieces = append(pieces, piece{faint, ", one model at a time"})
		}
		write(label, pieces...)
		label = ""
	}
	counts := []piece{{plain, fmt.Sprintf("%d running, %d served", s.Running, s.Served)}}
	if s.Failed > 0 {
		counts = append(counts, piece{warning, fmt.Sprintf(", %d failed", s.Failed)})
	}
	write("requests", counts...)
	for _, r := range s.Recent {
		write("", requestPieces(r)...)
	}
}

func tunnelPieces(t *agent.TunnelStatus) []piece {
	return []piece{{plain, t.Transport}, {faint, ", round trip "}, {plain, short(t.RTT)}}
}

// legPieces returns the edge and the tunnel of a leg, or the reason why it has no tunnel.
func legPieces(l agent.LegStatus, now time.Time) []piece {
	if l.Tunnel != nil {
		return append([]piece{{plain, l.Edge}, {faint, " over "}}, tunnelPieces(l.Tunnel)...)
	}
	state := stateText(agent.Status{State: l.State, Since: l.Since, Problem: l.Problem}, now)
	pieces := append([]piece{{plain, l.Edge + "  "}}, state...)
	if l.Problem != nil {
		pieces = append(pieces, piece{faint, ": " + l.Problem.Reason})
	}
	return pieces
}

// upstreamState returns the state of a model server, with the number of its models.
func upstreamState(u agent.UpstreamStatus) piece {
	switch {
	case u.State == upstream.StateDown:
		return piece{bad, "  down"}
	case u.State != upstream.StateReachable:
		return piece{faint, "  unknown"}
	case u.Models == nil:
		return piece{good, "  reachable"}
	case len(u.Models) == 1:
		return piece{good, "  reachable, 1 model: " + u.Models[0]}
	default:
		return piece{good, fmt.Sprintf("  reachable, %d models", len(u.Models))}
	}
}

func stateText(s agent.Status, now time.Time) []piece {
	since := piece{faint, " for " + short(now.Sub(s.Since).Truncate(time.Second))}
	switch s.State {
	case agent.StateOnline:
		return []piece{{good, "online"}, since}
	case agent.StateWaiting:
		text := "not connected"
		if s.Problem != nil {
			text += fmt.Sprintf(", next try in %s", short(s.Problem.RetryAt.Sub(now).Round(time.Second)))
		}
		return []piece{{bad, text}}
	case agent.StateDraining:
		return []piece{{warning, "stopping"}, {faint, ", running requests may finish"}}
	default:
		return []piece{{warning, string(s.State)}}
	}
}

func requestPieces(r upstream.Request) []piece {
	result, tone := r.Result, bad
	if r.Status != 0 && strings.HasSuffix(result, "xx") {
		result = fmt.Sprint(r.Status)
		switch {
		case r.Status < 400:
			tone = good
		case r.Status < 500:
			tone = warning
		}
	}
	request := strings.TrimSpace(r.Method + " " + r.Path)
	return []piece{
		{faint, r.At.Local().Format(time.TimeOnly) + "  "},
		{tone, fmt.Sprintf("%-4s", result)},
		{plain, fmt.Sprintf(" %7s  %s", short(r.Duration), request)},
		{faint, "  " + r.Upstream},
	}
}
