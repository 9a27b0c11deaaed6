package service

import (
	_ "embed"
	"encoding/xml"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
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

// LogCommand returns the command that shows the last lines of the service's log, and
// follows it if follow is set.
func (p Plan) LogCommand(lines int, follow bool) []string {
	return p.logCommand(runtime.GOOS, strconv.Itoa(lines), follow)
}

func (p Plan) logCommand(system, lines string, follow bool) []string {
	only := func(when bool, argument string) []string {
		if when {
			return []string{argument}
		}
		return nil
	}
	switch system {
	case "darwin":
		return slices.Concat([]string{"tail", "-n", lines}, only(follow, "-F"), []string{p.LaunchdLog()})
	case "windows":
		show := "Get-Content -Tail " + lines + " -LiteralPath '" + windowsLog(p.Name) + "'"
		return slices.Concat([]string{"powershell", "-NoProfile", "-Command", show}, only(follow, "-Wait"))
	default:
		unit := "--unit=" + p.Name
		if p.User {
			unit = "--user-unit=" + p.Name
		}
		return slices.Concat([]string{"journalctl", "--no-pager", "--output=cat", unit, "--lines=" + lines},
			only(follow, "--follow"))
	}
}
