package downloads

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// On a machine with a connector, the line replaces the program and restarts the service, also if it has a code. It
// ends as the restart does.
func TestInstallAgain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, arguments, env string
		status               int
		want                 []string // in the output; "!" means not
	}{
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
	} {
		for _, shell := range shells(t) {
			t.Run(tt.name+" in "+shell[0], func(t *testing.T) {
				t.Parallel()
				m := newMachine(t, true)
				m.env = append(m.env, strings.Fields(tt.env)...)
				bin := filepath.Join(m.home, "bin")
				must(t, os.Mkdir(bin, 0o700))
				write(t, bin, "connector", "the former one")
				line := strings.Join(shell, " ") + " -s -- " + strings.Replace(tt.arguments, "TO", "--to "+bin, 1)
				out, status := m.run(m.script(), "sh", "-c", line)
				if status != tt.status {
					t.Errorf("status %d", status)
				}
				if content, err := os.ReadFile(filepath.Join(bin, "connector")); string(content) != program {
					t.Errorf("the program is %q, %v", content, err)
				}
				user := "--user"
				if os.Geteuid() == 0 {
					user = "--config /etc/postern/connector.json"
				}
				for _, want := range tt.want {
					text, not := strings.CutPrefix(strings.Replace(want, "USER", user, 1), "!")
					if strings.Contains(out, text) == not {
						t.Errorf("%q: %t", text, !not)
					}
				}
				if t.Failed() {
					t.Log(out)
				}
			})
		}
	}
}

// Nothing changes if the program of the gateway does not start, or if the line would install a second connector.
func TestInstallAgainRefuses(t *testing.T) {
	t.Parallel()
	m := newMachine(t, true)
	bin := filepath.Join(m.home, "bin")
	must(t, os.Mkdir(bin, 0o700))
	write(t, bin, "connector", "the former one")
	m.env = append(m.env, "SERVICE=online", "BROKEN=1")
	out, status := m.run(m.script(), "sh", "-s", "--", "--to", bin)
	if content, _ := os.ReadFile(filepath.Join(bin, "connector")); status != 1 || string(content) != "the former one" ||
		!strings.Contains(out, "does not start on this machine; nothing has changed") || strings.Contains(out, "restart") {
		t.Errorf("a program that does not start: status %d, %q, %s", status, content, out)
	}
	must(t, os.Chmod(filepath.Join(bin, "connector"), 0o700))
	m.env = append(m.env, "PATH="+bin+":"+os.Getenv("PATH"))
	if out, status := m.run(m.script(), "sh"); status != 1 || strings.Contains(out, "Downloading") ||
		!strings.Contains(out, "this machine has "+bin+"/connector. If the line put it there, run this as the user who") {
		t.Errorf("a connector elsewhere: status %d, %s", status, out)
	}
}

// Windows keeps the file of a running program: the script checks the new program, stops the service, and then moves it.
func TestWindowsOrder(t *testing.T) {
	t.Parallel()
	text, at := Install.PowerShell(Site{}, nil), 0
	for _, step := range []string{
		"& $new --version", "Stop-Service $name", "Move-Item $new $program", "service restart @config",
		"Get-Connector $scratch", "pair $gateway", "Install-Program $scratch", "Restart-Connector $program\n",
	} {
		next := strings.Index(text[at:], step)
		if next < 0 {
			t.Errorf("%s comes too early, or not at all", step)
			continue
		}
		at += next
	}
}

// The line for an older connector is for its system. Without an archive, there is none.
func TestUpdateLine(t *testing.T) {
	t.Parallel()
	all := []Archive{{Name: "a", System: "linux", Arch: "amd64"}, {Name: "b", System: "windows", Arch: "amd64"}}
	public := Site{"https://gw.example.com", "https://gw.example.com/console", "PIN", true}
	for platform, want := range map[string]string{
		"linux/amd64":   "curl -fsSL https://gw.example.com/console/install.sh | sh",
		"windows/amd64": "& ([scriptblock]::Create((irm 'https://gw.example.com/console/install.ps1')))",
		"linux/arm64":   "", "": "",
	} {
		if got := UpdateLine(public, all, platform); got != want {
			t.Errorf("%s: got  %s\nwant %s", platform, got, want)
		}
	}
	lan := Site{URL: "http://10.0.0.5:8080", Console: "http://10.0.0.5:8080/console"}
	if got := UpdateLine(lan, all, "linux/amd64"); !strings.HasSuffix(got, `&& sh "$s"`) {
		t.Errorf("over plain HTTP: %s", got)
	}
}
