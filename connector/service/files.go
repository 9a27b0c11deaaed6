package service

import (
	_ "embed"
	"encoding/xml"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stopGrace is added to the drain before a service manager kills the process.
const stopGrace = 10 * time.Second

var (
	//go:embed system.service.txt
	systemUnit string
	//go:embed user.service.txt
	userUnit string
	//go:embed launchd.plist.txt
	propertyList string
)

// Unit returns the unit for systemd. A system service runs as a dynamic user, and systemd
// passes the files to it. It is ready with a valid configuration, so that an unreachable
// gateway does not block a boot.
func (p Plan) Unit() string {
	unit, keys := systemUnit, ""
	if p.User {
		unit = userUnit
	}
	for _, path := range slices.Compact(slices.Sorted(slices.Values(p.Keys))) {
		keys += "LoadCredential=" + escapePercent(filepath.Base(path)) + ":" + escapePercent(path) + "\n"
	}
	return p.fill(unit, "{title}", p.Title(), "{program}", quote(p.Executable), "{config}", escapePercent(p.Config),
		"{quoted-config}", quote(p.Config), "{drain}", p.Drain.String(), "{keys}", keys)
}

// PropertyList returns the property list for launchd.
func (p Plan) PropertyList() string {
	account, arguments := "", ""
	if p.Account != "" && !p.User {
		account = "\t<key>UserName</key>\n\t<string>" + escapeXML(p.Account) + "</string>\n"
	}
	for _, argument := range append([]string{p.Executable}, p.Arguments()...) {
		arguments += "\t\t<string>" + escapeXML(argument) + "</string>\n"
	}
	return p.fill(propertyList, "{account}", account, "{arguments}", arguments, "{log}", escapeXML(p.LaunchdLog()))
}

// fill replaces names in a text. text/template would link all methods of all types.
func (p Plan) fill(text string, values ...string) string {
	stop := strconv.Itoa(int((p.Drain + stopGrace).Seconds()))
	return strings.NewReplacer(append(values, "{name}", p.Name, "{stop}", stop)...).Replace(text)
}

// Title returns the display name of the service.
func (p Plan) Title() string {
	if p.Name == DefaultName {
		return "Postern connector"
	}
	return "Postern connector " + p.Name
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

// escapePercent escapes systemd's specifiers.
func escapePercent(s string) string { return strings.ReplaceAll(s, "%", "%%") }

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
