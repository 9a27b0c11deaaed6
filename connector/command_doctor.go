package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/doctor"
	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/tty"
)

// doctorFlags are the flags of the doctor command.
type doctorFlags struct {
	config, measured string
	timeout          time.Duration
	asJSON           bool
}

func doctorCommand(sys system) *cobra.Command {
	var f doctorFlags
	command := &cobra.Command{
		Use:   "doctor [--config FILE] [--measure MODEL] [--json]",
		Short: "Check everything the connector needs, and suggest fixes",
		Long: `Checks the configuration, the gateway's name, the transports to it (UDP, and
WebSocket where UDP is blocked), its pin, whether it accepts the tunnel token, this
machine's clock, and each model server: its list of models, and a short streamed
answer from the first one. A running connector is not disturbed.

With --measure, it also sends a prompt of 1.2 MB to each model server with this model.
The answer shows how many tokens its context window has, and whether the server refuses
longer prompts or silently cuts them. That takes up to five minutes.

Exit codes: 0 no check failed, 1 a check failed, 2 invalid flags or configuration.`,
		Example: `  connector doctor
  connector doctor --measure qwen3:8b
  connector doctor --config connector.json --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if f.config == "" {
				f.config = sys.pairedConfig()
			}
			loaded, err := sys.load(f.config)
			if err != nil {
				return err
			}
			ctx, stop := sys.signals(command.Context())
			defer stop()
			return diagnose(ctx, sys, loaded, f)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&f.config, "config", "c", "", "configuration `FILE` (default: as for `connector run`)")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	flags.StringVar(&f.measured, "measure", "", "measure the context window of this `MODEL` of the model server")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "`TIME` limit for a model's answer")
	return command
}

func diagnose(ctx context.Context, sys system, loaded config.Loaded, f doctorFlags) error {
	var findings []doctor.Finding
	failures := 0
	report := func(finding doctor.Finding) {
		if finding.Result == doctor.ResultFailed {
			failures++
		}
		findings = append(findings, finding)
		if !f.asJSON {
			writeFinding(sys.stdout, finding)
		}
	}
	report(configFinding(f.config, loaded))
	report(connectorFinding(ctx, sys, f.config))
	if err := doctor.Run(ctx, loaded.Config, f.timeout, f.measured, report); err != nil {
		return failed(fmt.Errorf("interrupted: %w", err))
	}
	if f.asJSON {
		if err := printJSON(sys.stdout, map[string]any{"ok": failures == 0, "checks": findings}); err != nil {
			return failed(err)
		}
	}
	if failures > 0 {
		return failed(fmt.Errorf("%d of %d checks failed", failures, len(findings)))
	}
	return nil
}

func configFinding(path string, loaded config.Loaded) doctor.Finding {
	f := doctor.Finding{Check: "configuration", Result: doctor.ResultOK, Detail: path}
	if path == "" {
		f.Detail = "from the environment"
	}
	if len(loaded.Warnings) > 0 {
		f.Result, f.Detail = doctor.ResultWarning, strings.Join(loaded.Warnings, "; ")
	}
	return f
}

// connectorFinding reports whether the connector is running.
func connectorFinding(ctx context.Context, sys system, path string) doctor.Finding {
	f := doctor.Finding{Check: "connector"}
	r, _, err := findConnector(ctx, sys, selector{config: path})
	switch {
	case err != nil:
		f.Result, f.Detail = doctor.ResultSkipped, err.Error()
	case r.State == agent.StateOnline:
		f.Result, f.Detail = doctor.ResultOK, fmt.Sprintf("process %d is %s", r.PID, oneLine(r.Status))
	default:
		f.Result, f.Detail = doctor.ResultFailed, fmt.Sprintf("process %d: %s", r.PID, oneLine(r.Status))
		if r.Problem != nil {
			f.Detail, f.Fix = fmt.Sprintf("process %d cannot connect: %s", r.PID, r.Problem.Reason), r.Problem.Fix
		}
		if f.Fix == "" {
			f.Fix = "see the checks below"
		}
	}
	return f
}

func writeFinding(w io.Writer, f doctor.Finding) {
	tone := map[doctor.Result]tty.Tone{doctor.ResultOK: good, doctor.ResultWarning: warning, doctor.ResultFailed: bad}
	result := tty.Paint(w, tone[f.Result], fmt.Sprintf("%-8s", f.Result))
	fmt.Fprintf(w, "%s %s: %s\n", result, f.Check, text.Line(f.Detail))
	if f.Fix != "" {
		fmt.Fprintf(w, "         fix: %s\n", text.Line(f.Fix))
	}
}
