package downloads

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
	public := Site{"https://gw.example.com", "https://gw.example.com/console", "PIN", true, ""}
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
