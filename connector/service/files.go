package service

import (
	_ "embed"
	"encoding/xml"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/template"
	"time"
)

// stopGrace is added to the drain before a service manager kills the process.
const stopGrace = 10 * time.Second

var (
	//go:embed systemd.tmpl
	systemdText string
	//go:embed launchd.tmpl
	launchdText string

	functions = template.FuncMap{"quote": quote, "percent": percent, "xml": escapeXML}
	systemd   = template.Must(template.New("systemd").Funcs(functions).Parse(systemdText))
	launchd   = template.Must(template.New("launchd").Funcs(functions).Parse(launchdText))
)

// Unit returns the unit for systemd. A system service runs as a dynamic user, and systemd
// passes the files to it. It is ready with a valid configuration, so that an unreachable
// gateway does not block a boot.
func (p Plan) Unit() string { return p.fill(systemd) }

// PropertyList returns the property list for launchd.
func (p Plan) PropertyList() string { return p.fill(launchd) }

func (p Plan) fill(t *template.Template) string {
	var b strings.Builder
	if err := t.Execute(&b, p); err != nil {
		panic(err) // the templates are tested
	}
	return b.String()
}

// Title returns the display name of the service.
func (p Plan) Title() string {
	if p.Name == DefaultName {
		return "Postern connector"
	}
	return "Postern connector " + p.Name
}

// StopSeconds returns how long the service may take to stop.
func (p Plan) StopSeconds() int { return int((p.Drain + stopGrace).Seconds()) }

// KeyFiles returns the distinct key files.
func (p Plan) KeyFiles() (files []struct{ Name, Path string }) {
	for _, path := range slices.Compact(slices.Sorted(slices.Values(p.Keys))) {
		files = append(files, struct{ Name, Path string }{filepath.Base(path), path})
	}
	return files
}

// Arguments returns the connector's arguments for services that read their files
// themselves.
func (p Plan) Arguments() []string {
	arguments := []string{"run", "--config", p.Config, "--log-format", "json", "--drain-timeout", p.Drain.String()}
	if p.Name != DefaultName {
		arguments = append(arguments, NameFlag, p.Name)
	}
	return arguments
}

// LaunchdLog returns the log file of a launchd service.
func (p Plan) LaunchdLog() string {
	return filepath.Join(p.Home, "Library", "Logs", p.Name+".log")
}

// quote quotes a word for a command line in a unit.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$").Replace(s) + `"`
}

// percent escapes systemd's specifiers.
func percent(s string) string { return strings.ReplaceAll(s, "%", "%%") }

func escapeXML(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder never fails
	return b.String()
}

// LogCommand returns the command of this system that shows the service's log.
func (p Plan) LogCommand() string { return p.logCommand(runtime.GOOS) }

func (p Plan) logCommand(system string) string {
	switch {
	case system == "darwin":
		return "tail -n 100 '" + p.LaunchdLog() + "'"
	case system == "windows":
		return "Get-Content -Tail 100 -LiteralPath '" + windowsLog(p.Name) + "'"
	case p.User:
		return "journalctl --user -u " + p.Name
	default:
		return "sudo journalctl -u " + p.Name
	}
}
