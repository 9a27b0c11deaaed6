package service

import (
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"
)

// launchdLog is where a service of launchd writes its log.
func (p Plan) launchdLog() string {
	return filepath.Join(p.Home, "Library", "Logs", p.Name+".log")
}

// PropertyList returns the property list for launchd.
func (p Plan) PropertyList() string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>` + p.Name + `</string>
	<key>ProgramArguments</key>
	<array>
`)
	for _, argument := range append([]string{p.Executable}, p.arguments()...) {
		fmt.Fprintf(&b, "\t\t<string>%s</string>\n", escape(argument))
	}
	b.WriteString("\t</array>\n")
	if p.Account != "" && !p.User {
		fmt.Fprintf(&b, "\t<key>UserName</key>\n\t<string>%s</string>\n", escape(p.Account))
	}
	fmt.Fprintf(&b, `	<key>RunAtLoad</key>
	<true/>
	<key>KeepAlive</key>
	<dict>
		<key>SuccessfulExit</key>
		<false/>
	</dict>
	<key>ThrottleInterval</key>
	<integer>5</integer>
	<key>ExitTimeOut</key>
	<integer>%d</integer>
	<key>Umask</key>
	<integer>63</integer>
	<key>StandardErrorPath</key>
	<string>%s</string>
</dict>
</plist>
`, int((p.Drain + stopGrace).Seconds()), escape(p.launchdLog()))
	return b.String()
}

// arguments are the connector's, where the service reads its files itself.
func (p Plan) arguments() []string {
	arguments := []string{"run", "--config", p.Config, "--log-format", "json", "--drain-timeout", p.Drain.String()}
	if p.Name != DefaultName {
		arguments = append(arguments, NameFlag, p.Name)
	}
	return arguments
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a strings.Builder takes everything
	return b.String()
}
