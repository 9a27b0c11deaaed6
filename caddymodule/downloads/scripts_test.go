package downloads

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// installs are lines of a console. On a machine with a connector, they replace the program and restart the service,
// also if they have a code, and end as the restart does.
var installs = map[string][]installation{
	"first": {
		{"no code", "TO", "", 0, []string{"Installed connector v0.9.0", "!connector pair", "is not in PATH"}},
		{
			"no terminal", code + " TO --upstream http://localhost:1234 --config c.json", "", 0,
			[]string{
				"connector pair URL " + code + " --config c.json --no-run --upstream http://localhost:1234\n",
				"service install --config c.json\n", "!\nconnector run",
			},
		},
		{
			"service", code + " TO --service -c c.json --name 'my box'", "SERVICE=online", 0,
			[]string{
				"--no-run --name my box\n", "connector service install --no-start --config c.json\n",
				"connector service restart ", "!\nconnector run",
			},
		},
		{
			"no service", code + " TO --config=c.json --no-service", "", 0,
			[]string{"\nconnector run --config c.json\n", "!service install"},
		},
		{"service fails", code + " --config c.json --service TO", "NO_SERVICE=1", 1, []string{"!\nconnector run"}},
		{
			"paired already", code + " TO --config c.json --no-service", "PAIRED=1", 0,
			[]string{"already paired", "stays paired", "!service", "\nconnector run --config c.json\n"},
		},
		{"flag without value", code + " TO --config", "", 1, []string{"--config needs a value", "!Installed"}},
		{"code behind flags", "TO --name box " + code, "", 1, []string{"the pairing code comes first", "!Installed"}},
	},
	"again": {
		{
			"service", "TO", "SERVICE=online", 0,
			[]string{"Installed connector v0.9.0", "connector service restart USER\n", "!connector pair", "!former program"},
		},
		{"offline", "TO", "SERVICE=offline", 1, []string{"connector service restart USER\n", "the tunnel is down"}},
		{"no service", "TO", "", 0, []string{"!not installed", "restart it: it still runs the former program"}},
		{"foreground", "TO --no-service", "SERVICE=online", 0, []string{"!service restart", "the former program"}},
		{
			"with its old code", code + " TO --upstream http://localhost:1234", "SERVICE=online PAIRED=1", 0,
			[]string{"already paired", "stays paired", "connector service restart USER\n", "!service install"},
		},
		{
			"with a new token", code + " TO --force", "SERVICE=online", 0,
			[]string{"connector pair", "connector service restart USER\n", "!service install"},
		},
		{
			"another connector", code + " TO --config other.json --service", "SERVICE=online", 0,
			[]string{"connector service install --no-start --config other.json\n"},
		},
	},
}

type installation struct {
	name, arguments, env string
	status               int
	want                 []string // in the output; "!" means not
}

func TestInstall(t *testing.T) {
	t.Parallel()
	user := "--user"
	if os.Geteuid() == 0 {
		user = "--config /etc/postern/connector.json"
	}
	for machine, list := range installs {
		for _, tt := range list {
			for _, shell := range shells(t) {
				t.Run(machine+", "+tt.name+" in "+shell[0], func(t *testing.T) {
					t.Parallel()
					m := newMachine(t, true)
					m.env = append(m.env, strings.Fields(tt.env)...)
					bin := filepath.Join(m.home, "bin")
					if machine == "again" {
						must(t, os.Mkdir(bin, 0o700))
						write(t, bin, "connector", "the former one")
					}
					line := strings.Join(shell, " ") + " -s -- " + strings.Replace(tt.arguments, "TO", "--to "+bin, 1)
					out, status := m.run(m.script(), "sh", "-c", line)
					m.outputs(strings.ReplaceAll(out, user, "USER"), status, tt.status, tt.want)
					content, err := os.ReadFile(filepath.Join(bin, "connector"))
					if machine == "again" && string(content) != program {
						t.Errorf("the program is %q, %v", content, err)
					}
				})
			}
		}
	}
}

// A download that was changed, or that is for another machine, is not installed.
func TestInstallRefuses(t *testing.T) {
	t.Parallel()
	m := newMachine(t, true)
	script := m.script()
	write(t, m.folder.path, archiveName(), packed(t)+"more")
	if out, status := m.run(script, "sh", "-s", "--", "--to", m.home+"/bin"); status != 1 ||
		!strings.Contains(out, "damaged") || m.installed() {
		t.Errorf("a changed archive: status %d, %s", status, out)
	}
	must(t, os.Remove(filepath.Join(m.folder.path, archiveName())))
	if out, status := m.run(script, "sh", "-s", "--", "--to", m.home+"/bin"); status != 1 ||
		!strings.Contains(out, "cannot download") || m.installed() {
		t.Errorf("a removed archive: status %d, %s", status, out)
	}
	if out, status := m.run(m.script(), "sh", "-s", "--", "--to", m.home+"/bin"); status != 1 ||
		!strings.Contains(out, "no connector for "+runtime.GOOS) || !strings.Contains(out, "./xcaddy.sh connectors") ||
		m.installed() {
		t.Errorf("no archive: status %d, %s", status, out)
	}
}

// The connection may end within the script: a part of it must do nothing.
func TestCutScript(t *testing.T) {
	t.Parallel()
	m := newMachine(t, true)
	script := m.script()
	for n := 0; n < len(script)-len("main \"$@\"\n"); n += 97 {
		if out, _ := m.run(script[:n], "sh", "-s", "--", code, "--to", m.home+"/bin"); m.installed() ||
			strings.Contains(out, "Downloading") {
			t.Fatalf("the first %d bytes install the connector: %s", n, out)
		}
	}
}

// The line for a site that a machine cannot verify checks the script.
func TestUnverifiedLine(t *testing.T) {
	t.Parallel()
	m := newMachine(t, false)
	m.saved = []string{"tmp.*"}
	line := CommandsFor(m.site, m.folder.Archives(), code).Install + " --config c.json --to " + m.home + "/bin"
	out, status := m.run("", "sh", "-c", line)
	if want := "pair " + m.site.URL + " " + code +
		" --config c.json --no-run --upstream http://localhost:11434 --pin PIN\n"; status != 0 ||
		!strings.Contains(out, want) {
		t.Errorf("status %d, %s", status, out)
	}
	m = newMachine(t, false)
	m.saved = []string{"tmp.*"}
	site := m.site
	site.Pin, site.Console = "OTHER", m.site.Console+"/changed" // as an attacker on the path could change it
	line = strings.Replace(CommandsFor(site, m.folder.Archives(), code).Install, "/changed/", "/", 1)
	if out, status := m.run("", "sh", "-c", line+" --to "+m.home+"/bin"); status == 0 || m.installed() ||
		!strings.Contains(out, "Copy a new line.") || strings.Contains(out, "no properly formatted") {
		t.Errorf("a changed script runs, or the reason is unclear: %s", out)
	}
}

// A saved script works wherever it is run from: in its own folder, with a relative folder
// for the program, in spite of CDPATH, and where the current folder has been removed.
func TestSavedScript(t *testing.T) {
	t.Parallel()
	for _, shell := range shells(t) {
		t.Run(shell[0], func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, true)
			write(t, m.home, "install.sh", m.script())
			line := strings.Join(shell, " ") + " install.sh " + code + " --to bin --config c.json"
			m.env = append(m.env, "CDPATH="+m.folder.path)
			must(t, os.Mkdir(filepath.Join(m.folder.path, "bin"), 0o700))
			out, status := m.runIn(m.home, "", "sh", "-c", line)
			if status != 0 || !m.installed() || !strings.Contains(out, "connector service install --config c.json\n") {
				t.Errorf("in its folder: status %d, %s", status, out)
			}
			line = "mkdir gone && cd gone && rmdir ../gone && " + strings.Join(shell, " ") + " '" + m.home +
				"/install.sh' --to '" + m.home + "/other'"
			if out, status := m.runIn(m.temp, "", "sh", "-c", line); status != 0 ||
				!strings.Contains(out, "Installed connector") {
				t.Errorf("without a current folder: status %d, %s", status, out)
			}
			m.holds(m.home, "install.sh", "bin", "bin/connector", "other", "other/connector")
			m.holds(m.temp)
			m.holds(m.folder.path, archiveName(), "bin")
		})
	}
}

// A program that cannot be put into its place leaves nothing there.
func TestBlockedProgram(t *testing.T) {
	t.Parallel()
	for what, block := range map[string]func(*machine) error{
		"a folder of its name": func(m *machine) error {
			return os.MkdirAll(filepath.Join(m.home, "bin", "connector"),
				0o700)
		},
		"mv fails": func(m *machine) error {
			tools := m.TempDir()
			m.env = append(m.env, "PATH="+tools+":"+os.Getenv("PATH"))
			return os.WriteFile(filepath.Join(tools, "mv"), []byte("#!/bin/sh\nexit 1\n"), 0o700)
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMachine(t, true)
			must(t, block(m))
			if out, status := m.run(m.script(), "sh", "-s", "--", "--to", m.home+"/bin"); status != 1 ||
				!strings.Contains(out, "cannot write "+m.home+"/bin/connector; ") {
				t.Errorf("status %d, %s", status, out)
			}
		})
	}
}

// The tools of small systems are enough.
func TestFewTools(t *testing.T) {
	t.Parallel()
	for _, tools := range []string{"wget shasum", "wget openssl", "curl sha256sum"} {
		t.Run(tools, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, false)
			m.site.Console = strings.Replace(m.site.Console, "127.0.0.1", "localhost", 1) // a name, for HSTS
			dir := t.TempDir()
			for tool := range strings.FieldsSeq("sh uname grep cut tar gzip mktemp rm mkdir cp mv chmod id head cat " + tools) {
				path, err := exec.LookPath(tool)
				must(t, err)
				must(t, os.Symlink(path, filepath.Join(dir, tool)))
			}
			m.env = append(m.env, "PATH="+dir)
			if out, status := m.run(m.script(), "sh", "-s", "--", "--to", m.home+"/bin"); status != 0 || !m.installed() {
				t.Errorf("status %d, %s", status, out)
			}
		})
	}
}

func TestShellcheck(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("shellcheck is not installed")
	}
	m := newMachine(t, false)
	for _, script := range []Script{Install, Use} {
		text := script.Shell(m.site, m.folder.Archives())
		if out, status := m.run(text, "shellcheck", "-s", "sh", "-"); status != 0 {
			t.Errorf("%s.sh: %s", script, out)
		}
	}
}

func TestPowerShell(t *testing.T) {
	t.Parallel()
	text := Use.PowerShell(Site{URL: "https://gw.example.com", Console: "https://gw.example.com/console"}, nil)
	if !strings.Contains(text, "$self = 'use.ps1'\n") || !strings.Contains(text, "$unverified = @('-k')\n") ||
		!strings.HasSuffix(text, "\nif ($self -eq 'use.ps1') { Set-Client @args } else { Install-Connector @args }\n") {
		t.Errorf("use.ps1: %s", text)
	}
}

func TestCommands(t *testing.T) {
	t.Parallel()
	all := []Archive{
		{Name: "connector_0.9.0_linux_amd64.tar.gz", System: "linux", Arch: "amd64"},
		{Name: "connector_0.9.0_windows_amd64.zip", System: "windows", Arch: "amd64"},
		{Name: "connector_0.9.0_darwin_arm64.tar.gz", System: "darwin", Arch: "arm64"},
	}
	public := Site{"https://gw.example.com", "https://gw.example.com/console", "PIN", true, ""}
	lan := Site{"http://10.0.0.5:8080", "http://10.0.0.5:8080/console", "PIN", false, ""}
	const upstream = " " + code + " --upstream http://localhost:11434"
	quoted := " '" + code + "' '--upstream' 'http://localhost:11434'"
	for _, tt := range []struct {
		name     string
		site     Site
		archives []Archive
		want     Commands
	}{
		{"public", public, all, Commands{
			"curl -fsSL https://gw.example.com/console/install.sh | sh -s --" + upstream,
			"& ([scriptblock]::Create((irm 'https://gw.example.com/console/install.ps1')))" + quoted,
			"connector pair https://gw.example.com" + upstream, "",
		}},
		{"plain HTTP", lan, all, Commands{
			fmt.Sprintf(`s=$(mktemp) && curl -fsSLk http://10.0.0.5:8080/console/install.sh -o "$s" && echo "%s  $s" | { `+
				`sha256sum -c || shasum -a 256 -c 2>/dev/null || { echo "This is not the install.sh of the gateway. Copy a new `+
				`line." >&2; false; }; } && sh "$s"%s --pin PIN`,
				hash(Install.Shell(lan, all)), upstream),
			fmt.Sprintf("$s = Join-Path $env:TEMP ([IO.Path]::GetRandomFileName() + '.ps1'); curl.exe -fsSLk "+
				"'http://10.0.0.5:8080/console/install.ps1' -o $s; "+
				"if ((Get-FileHash $s).Hash -eq '%s') { powershell -ExecutionPolicy Bypass -File $s%s '--pin' 'PIN' } "+
				"else { throw 'This is not the install.ps1 of the gateway: its SHA-256 is wrong. Copy a new line from the "+
				"console.' }",
				hash(Install.PowerShell(lan, all)), quoted),
			"connector pair http://10.0.0.5:8080" + upstream + " --pin PIN", "",
		}},
		{
			"only Windows", public, all[1:2],
			Commands{
				"", "& ([scriptblock]::Create((irm 'https://gw.example.com/console/install.ps1')))" + quoted,
				"connector pair https://gw.example.com" + upstream, strings.Replace(onlySome, "%s", "windows/amd64", 1),
			},
		},
		{"no archives", public, nil, Commands{Pair: "connector pair https://gw.example.com" + upstream, Note: howToGet}},
		{
			"no console",
			Site{URL: "https://gw.example.com", Verified: true},
			all,
			Commands{Pair: "connector pair https://gw.example.com" + upstream, Note: howToGet},
		},
		{
			"this machine",
			Site{URL: "http://localhost:8080"},
			nil,
			Commands{Pair: "connector pair http://localhost:8080" + upstream + " --pin ''", Note: onlyHere + "\n" + howToGet},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := CommandsFor(tt.site, tt.archives, code); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}
