package downloads

import (
	"cmp"
	"crypto/sha256"
	_ "embed" // for the scripts
	"encoding/hex"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/postern-dev/postern/connector/text"
)

// Site is how a machine reaches the gateway.
type Site struct {
	URL     string // of the gateway, without a slash at its end
	Console string // of the console, without a slash at its end; "" unknown
	Pin     string // of the gateway
	// Verified means that a machine can verify the site: it serves HTTPS with a certificate of
	// a public authority, or is on the same machine.
	Verified bool
	Root     string // certificate of Caddy's own authority as PEM, if that has issued the site's; "" otherwise
}

var (
	//go:embed install.sh
	shellBody string
	//go:embed install.ps1
	powerShellBody string
)

// Script is the name of a script that the gateway hands out, for shells and for PowerShell. Only this name differs in
// their texts.
type Script string

// The scripts that install a connector, and that set up a client.
const (
	Install Script = "install"
	Use     Script = "use"
)

const opening = "# Brings the connector of the Postern gateway at %s\n"

// Shell returns the script for shells. It is the same for the same site and archives.
func (s Script) Shell(site Site, archives []Archive) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#!/bin/sh\n"+opening+"set -eu\n\n", text.Printable(site.URL, maxURL))
	unverified, lines := "", make([]string, len(archives))
	if !site.Verified {
		unverified = "yes # this script has the hashes of all downloads"
	}
	for i, a := range archives {
		lines[i] = a.Platform() + " " + a.Name + " " + a.SHA256
	}
	fmt.Fprintf(&b, "self=%s.sh\ngateway=%s\nconsole=%s\nunverified=%s\narchives=%s\n", s,
		text.ShellQuote(site.URL), text.ShellQuote(site.Console), unverified, text.ShellQuote(strings.Join(lines, "\n")))
	return b.String() + shellBody
}

// PowerShell returns the script for PowerShell, as [Script.Shell] does.
func (s Script) PowerShell(site Site, archives []Archive) string {
	var b strings.Builder
	fmt.Fprintf(&b, opening+"\n", text.Printable(site.URL, maxURL))
	unverified := ""
	if !site.Verified {
		unverified = "'-k'" // the script contains the hashes of all downloads
	}
	fmt.Fprintf(&b, "$self = '%s.ps1'\n$gateway = %s\n$console = %s\n$unverified = @(%s)\n$archives = @{\n", s,
		text.PowerShellQuote(site.URL), text.PowerShellQuote(site.Console), unverified)
	for _, a := range archives {
		fmt.Fprintf(&b, "\t%s = @{ name = %s; sha256 = %s }\n",
			text.PowerShellQuote(a.Platform()), text.PowerShellQuote(a.Name), text.PowerShellQuote(a.SHA256))
	}
	return b.String() + "}\n" + powerShellBody
}

const maxURL = 300 // bytes of a URL in a comment

// Commands are the commands that connect a machine.
type Commands struct {
	// Install installs and pairs a connector, in a shell of Linux or macOS; "" if the
	// gateway has no archive for them. InstallWindows is for PowerShell.
	Install        string `json:"install,omitempty"`
	InstallWindows string `json:"install_windows,omitempty"`
	// Pair pairs an installed connector.
	Pair string `json:"pair"`
	// Note is advice to read first, in lines of at most 80 characters. It may be empty.
	Note string `json:"note,omitempty"`
}

const (
	onlyHere = `This gateway is reachable from this machine only. To connect other machines,
publish it as docs/install.md describes.`
	// howToGet is for gateways that were built without archives.
	howToGet = `This gateway has no connectors to hand out. With a clone on that machine,
"./xcaddy.sh" builds bin/connector. With one on this machine, "./xcaddy.sh connectors"
builds the connectors of all systems into bin/connectors: a gateway hands out what is
in the folder "connectors" next to its program.`
	// onlySome is for gateways that were built with the archive of their own system.
	onlySome = `Connector downloads here: %s only.
For other systems, run "./xcaddy.sh connectors" in its clone, or "./xcaddy.sh" in a
clone on that machine.`
)

// note returns the note of the commands.
func (c *Commands) note(site Site, archives []Archive) string {
	var notes, platforms []string
	for _, a := range archives {
		platforms = append(platforms, a.Platform())
	}
	if OnlyHere(site.URL) {
		notes = append(notes, onlyHere)
	}
	if c.Install == "" && c.InstallWindows == "" {
		notes = append(notes, howToGet)
	} else if !hasAny(archives, "linux") || !hasAny(archives, "darwin") || !hasAny(archives, "windows") {
		notes = append(notes, fmt.Sprintf(onlySome, strings.Join(platforms, ", ")))
	}
	return strings.Join(notes, "\n")
}

// OnlyHere reports whether a URL has an address of this machine only.
func OnlyHere(base string) bool {
	u, err := url.Parse(base)
	return err == nil && IsLoopback(u.Hostname())
}

// IsLoopback reports whether a name or an address is of the loopback interface.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && ip.IsLoopback()
}

// exampleUpstream stands for the address of the model server: Ollama's.
const exampleUpstream = "http://localhost:11434"

// CommandsFor returns the commands for a pairing code. A machine that cannot verify the
// site gets the hash of the script, and the pin of the gateway.
func CommandsFor(site Site, archives []Archive, code string) Commands {
	flags := site.flags("--upstream", exampleUpstream)
	c := Commands{Pair: "connector pair" + spaced(text.ShellWord, append([]string{site.URL, code}, flags...))}
	arguments := append([]string{code}, flags...)
	c.Install = Install.shellLine(site, archives, arguments)
	c.InstallWindows = Install.powerShellLine(site, archives, arguments)
	c.Note = c.note(site, archives)
	return c
}

// UpdateLine returns the line that replaces the connector of a machine, in PowerShell if that runs Windows. It is ""
// without an archive for the platform, such as "linux/amd64".
func UpdateLine(site Site, archives []Archive, platform string) string {
	if !slices.ContainsFunc(archives, func(a Archive) bool { return a.Platform() == platform }) {
		return ""
	}
	if strings.HasPrefix(platform, "windows/") {
		return Install.powerShellLine(site, archives, nil)
	}
	return Install.shellLine(site, archives, nil)
}

// UseCommands are the commands that set up a client.
type UseCommands struct {
	// Shell is for a shell of Linux or macOS; "" if the gateway has no archive for them. PowerShell is for Windows.
	Shell      string `json:"shell,omitempty"`
	PowerShell string `json:"powershell,omitempty"`
	// Connector is for machines with a connector.
	Connector string `json:"connector"`
}

// UseCommandsFor returns the commands that set up a client with a code, as [CommandsFor] does.
func UseCommandsFor(site Site, archives []Archive, client, code string) UseCommands {
	arguments := []string{client, code}
	gateway := cmp.Or(strings.TrimSuffix(site.Console, "/console"), "https://GATEWAY")
	if site.Root != "" {
		arguments = append(arguments, "--ca", "sha256:"+hash(site.Root))
	} else if strings.HasPrefix(gateway, "http://") { // a pin says nothing about a certificate of HTTPS
		arguments = site.flags(arguments...)
	}
	return UseCommands{
		Use.shellLine(site, archives, arguments), Use.powerShellLine(site, archives, arguments),
		"connector use --gateway" + spaced(text.ShellWord, append([]string{gateway}, arguments...)),
	}
}

// flags adds the pin of a site that a machine cannot verify to arguments.
func (site Site) flags(arguments ...string) []string {
	if !site.Verified {
		arguments = append(arguments, "--pin", site.Pin)
	}
	return arguments
}

// shellLine returns the line that loads and runs the script, "" without archives for it.
func (s Script) shellLine(site Site, archives []Archive, arguments []string) string {
	if site.Console == "" || !hasAny(archives, "linux", "darwin") {
		return ""
	}
	url, given := text.ShellWord(fmt.Sprintf("%s/%s.sh", site.Console, s)), spaced(text.ShellWord, arguments)
	if site.Verified {
		if given != "" {
			given = " -s --" + given
		}
		return "curl -fsSL " + url + " | sh" + given
	}
	return load(url, hash(s.Shell(site, archives)), string(s)+".sh") + `sh "$s"` + given
}

// load returns the beginning of a line that loads a file into $s, from a site that cannot be verified, and checks it.
// macOS has shasum instead of sha256sum. After a wrong sum, sha256sum has already read the line, and shasum would
// complain about its empty input.
func load(url, hash, name string) string {
	return fmt.Sprintf(`s=$(mktemp) && curl -fsSLk %s -o "$s" && `+
		`echo "%s  $s" | { sha256sum -c || shasum -a 256 -c 2>/dev/null || `+
		`{ echo "This is not the %s of the gateway. Copy a new line." >&2; false; }; } && `, url, hash, name)
}

// RootLine returns the line that loads the root certificate of the gateway's own authority into root.crt, "" if another
// authority has issued the gateway's certificate.
func (site Site) RootLine() string {
	if site.Root == "" || site.Console == "" {
		return ""
	}
	return load(text.ShellWord(site.Console+"/root.crt"), hash(site.Root), "root.crt") + `mv "$s" root.crt`
}

// powerShellLine is shellLine for PowerShell.
func (s Script) powerShellLine(site Site, archives []Archive, arguments []string) string {
	if site.Console == "" || !hasAny(archives, "windows") {
		return ""
	}
	url, given := text.PowerShellQuote(fmt.Sprintf("%s/%s.ps1", site.Console, s)), spaced(text.PowerShellQuote, arguments)
	if site.Verified {
		return "& ([scriptblock]::Create((irm " + url + ")))" + given
	}
	// Other users may write into the current folder, but not into TEMP.
	return fmt.Sprintf("$s = Join-Path $env:TEMP ([IO.Path]::GetRandomFileName() + '.ps1'); curl.exe -fsSLk %s -o $s; "+
		"if ((Get-FileHash $s).Hash -eq '%s') { powershell -ExecutionPolicy Bypass -File $s%s } "+
		"else { throw 'This is not the %s.ps1 of the gateway: its SHA-256 is wrong. "+
		"Copy a new line from the console.' }",
		url, hash(s.PowerShell(site, archives)), given, s)
}

func hash(script string) string {
	sum := sha256.Sum256([]byte(script))
	return hex.EncodeToString(sum[:])
}

// spaced returns the quoted words, with a space before each.
func spaced(quote func(string) string, words []string) string {
	var b strings.Builder
	for _, word := range words {
		b.WriteString(" " + quote(word))
	}
	return b.String()
}

// hasAny reports whether an archive is for one of the systems.
func hasAny(archives []Archive, systems ...string) bool {
	return slices.ContainsFunc(archives, func(a Archive) bool { return slices.Contains(systems, a.System) })
}
