package console

import "strings"

// The connector as `go install` fetches it, and the model server that the
// lines assume until the user writes another.
const (
	connectorPackage = "github.com/postern-dev/postern/connector@latest"
	usualUpstream    = "http://localhost:11434"
)

// pairLines are the commands that pair a connector with a claim code, for each
// way to have a connector.
func pairLines(base, pin, code string) []snippet {
	address, options := base, ""
	if strings.HasPrefix(base, "http://") && !loopback(base) {
		// Without a certificate the connector cannot verify the gateway, so that it
		// has to know the gateway's key beforehand.
		options = " --pin "
	}
	pair := func(quoted func(string) string) string {
		line := " pair " + quoted(address) + " " + code + " --upstream " + usualUpstream
		if options != "" {
			line += options + quoted(pin)
		}
		return line
	}
	return []snippet{
		oneSnippet("unix", "Linux, macOS", "With Go installed, in a shell:",
			"go install "+connectorPackage+` && "$(go env GOPATH)/bin/connector"`+pair(shellWord)),
		oneSnippet("windows", "Windows", "With Go installed, in PowerShell:",
			"go install "+connectorPackage+`; if ($?) { & "$(go env GOPATH)\bin\connector.exe"`+pair(powerShellQuote)+" }"),
		oneSnippet("installed", "Installed already", "Where the connector is installed already:",
			"connector"+pair(shellWord)),
	}
}
