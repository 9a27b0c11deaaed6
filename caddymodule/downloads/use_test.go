package downloads

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The line for a client runs the connector of the gateway, and leaves nothing behind.
func TestUse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		verified   bool
		root       string
		env        string
		noArchives bool
		status     int
		want       []string // in the output; "!" means not
	}{
		{
			name: "downloaded", verified: true,
			want: []string{"Downloading", "connector use claude USE-7K3M-Q9TX --gateway URL\n"},
		},
		{name: "fails", verified: true, env: "NO_USE=1", status: 3, want: []string{"no use"}},
		{name: "not verified", want: []string{"connector use claude USE-7K3M-Q9TX --gateway URL\n"}},
		{
			name: "of Caddy's own authority", root: "ROOT",
			want: []string{"connector use claude USE-7K3M-Q9TX --ca sha256:" + hash("ROOT") + " --gateway URL\n"},
		},
		{
			name: "no archive", verified: true, noArchives: true, status: 1,
			want: []string{
				"use.sh: the gateway has no connector for", "open the page of a model: URL/console/models", "!connector use",
			},
		},
	} {
		for _, shell := range shells(t) {
			t.Run(tt.name+" in "+shell[0], func(t *testing.T) {
				t.Parallel()
				m := newMachine(t, tt.verified, tt.root)
				m.saved = []string{"tmp.*"} // of the line that checks the script
				if tt.verified {
					m.saved = nil
				}
				m.env = append(m.env, tt.env)
				line := UseCommandsFor(m.site, m.folder.Archives(), "claude", "USE-7K3M-Q9TX").Shell
				if tt.noArchives {
					must(t, os.Remove(filepath.Join(m.folder.path, archiveName())))
				}
				line = strings.Replace(line, "| sh -s", "| "+strings.Join(shell, " ")+" -s", 1)
				line = strings.Replace(line, `&& sh "$s"`, "&& "+strings.Join(shell, " ")+` "$s"`, 1)
				out, status := m.run("not for the connector", "sh", "-c", line)
				m.outputs(out, status, tt.status, append(tt.want, "!not for the connector"))
			})
		}
	}
	m := newMachine(t, true)
	if out, status := m.run(Use.Shell(m.site, nil), "sh", "-s", "--", "claude"); status != 1 ||
		!strings.Contains(out, "a client and a code are needed") {
		t.Errorf("without a code: status %d, %s", status, out)
	}
}

func TestUseCommands(t *testing.T) {
	t.Parallel()
	all := []Archive{{Name: "a", System: "linux", Arch: "amd64"}, {Name: "b", System: "windows", Arch: "amd64"}}
	public := Site{"https://gw.example.com", "https://gw.example.com/console", "PIN", true, ""}
	want := UseCommands{
		"curl -fsSL https://gw.example.com/console/use.sh | sh -s -- claude USE-7K3M-Q9TX",
		"& ([scriptblock]::Create((irm 'https://gw.example.com/console/use.ps1'))) 'claude' 'USE-7K3M-Q9TX'",
		"connector use --gateway https://gw.example.com claude USE-7K3M-Q9TX",
	}
	if got := UseCommandsFor(public, all, "claude", "USE-7K3M-Q9TX"); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got := UseCommandsFor(public, nil, "claude", "USE-7K3M-Q9TX"); got != (UseCommands{Connector: want.Connector}) {
		t.Errorf("without archives: %+v", got)
	}
	lan := Site{URL: "http://10.0.0.5:8080", Console: "http://10.0.0.5:8080/console", Pin: "PIN"}
	if got := UseCommandsFor(lan, nil, "claude", "USE-7K3M-Q9TX").Connector; got !=
		"connector use --gateway http://10.0.0.5:8080 claude USE-7K3M-Q9TX --pin PIN" {
		t.Errorf("plain HTTP: %s", got)
	}
}

// The line for the root certificate keeps it only if it is the right one.
func TestRootLine(t *testing.T) {
	t.Parallel()
	for _, root := range []string{"FORGED", "ROOT"} {
		m := newMachine(t, false, root)
		expected := m.site
		expected.Root = "ROOT"
		dir := t.TempDir()
		out, status := m.runIn(dir, "", "sh", "-c", expected.RootLine())
		kept, _ := os.ReadFile(filepath.Join(dir, "root.crt"))
		if right := root == "ROOT"; (status == 0) != right || (string(kept) == root) != right {
			t.Errorf("%s: status %d, kept %q: %s", root, status, kept, out)
		}
	}
	if line := newMachine(t, false).site.RootLine(); line != "" {
		t.Errorf("of another authority: %s", line)
	}
}
