package service

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Services of both managers are found, with their programs and configurations.
func TestFind(t *testing.T) {
	for _, tt := range []struct {
		system, machine, own, other, ending string
		text                                func(Plan) string
	}{
		{
			"linux", "etc/systemd/system", "home/me/.config/systemd/user", "home/you/.config/systemd/user", ".service",
			Plan.Unit,
		},
		{
			"darwin", "Library/LaunchDaemons", "Users/me/Library/LaunchAgents", "Users/you/Library/LaunchAgents", ".plist",
			Plan.PropertyList,
		},
	} {
		t.Run(tt.system, func(t *testing.T) {
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			program, another := filepath.Join(root, `my "tools" 50% $x\connector`), filepath.Join(root, "another")
			linked := filepath.Join(root, "linked")
			for _, path := range []string{program, another} {
				if err := os.WriteFile(path, nil, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(program, linked); err != nil {
				t.Fatal(err)
			}
			homes, _, _ := strings.Cut(tt.own, "/")
			home, you := filepath.Join(root, homes, "me"), filepath.Join(root, homes, "you")
			var want []Plan
			install := func(folder, executable string, p Plan) {
				path := filepath.Join(root, folder, p.Name+tt.ending)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				described := p
				described.Executable = executable
				if err := os.WriteFile(path, []byte(tt.text(described)), 0o644); err != nil {
					t.Fatal(err)
				}
				want = append(want, p)
			}
			install(tt.machine, another, Plan{Name: "postern-another", Executable: another, Config: "/etc/postern/another.json"})
			install(tt.machine, program,
				Plan{Name: DefaultName, Executable: program, Config: "/etc/postern/100%/connector.json"})
			install(tt.machine, linked, Plan{Name: "postern-rack", Executable: program, Config: "/etc/postern/rack.json"})
			if tt.system == "linux" {
				packages := "usr/lib/systemd/system"
				install(packages, program,
					Plan{Name: "postern-packaged", Executable: program, Config: "/etc/postern/packaged.json"})
				install(packages, program, Plan{Name: DefaultName, Config: "/etc/postern/hidden.json"})
				want = want[:len(want)-1] // the unit in /etc replaces it
			}
			install(tt.own, program, Plan{
				Name: DefaultName, Executable: program, Config: `/home/me/$x "y"/connector.json`,
				User: true, Home: home,
			})
			install(tt.other, program, Plan{
				Name: DefaultName, Executable: program, Config: "/home/you/c.json", User: true,
				Home: you,
			})
			if got := findIn(folders(tt.system, root, home)); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
		})
	}
}

// Two services on one machine share no name, folder, file or socket.
func TestTwoServices(t *testing.T) {
	rack := plan()
	rack.Name, rack.Config = "postern-rack", "/etc/postern/rack.json"
	rack.User, rack.Home = false, "/Users/me"
	first := plan()
	first.Home = rack.Home
	for what, of := range map[string]func(Plan) string{
		"state folder":       func(p Plan) string { return setting(p.Unit(), "StateDirectory=") },
		"folder of socket":   func(p Plan) string { return setting(p.Unit(), "RuntimeDirectory=") },
		"copied file":        func(p Plan) string { return setting(p.Unit(), "LoadCredential=connector.json:") },
		"description":        func(p Plan) string { return setting(p.Unit(), "Description=") },
		"log of launchd":     Plan.LaunchdLog,
		"log of Windows":     func(p Plan) string { return windowsLog(p.Name) },
		"property list":      func(p Plan) string { c, config := parsePropertyList(p.PropertyList()); return c[0] + config },
		"log command":        func(p Plan) string { return p.logCommand("linux", "1", false)[3] },
		"name in arguments":  func(p Plan) string { return NameIn(p.Arguments()) },
		"name for a manager": func(p Plan) string { return p.config().Name },
	} {
		if a, b := of(first), of(rack); a == b || a == "" || b == "" {
			t.Errorf("%s: both have %q", what, a)
		}
	}
	for _, p := range []Plan{first, rack} {
		if setting(p.Unit(), "WantedBy=") != "multi-user.target" ||
			!strings.Contains(p.PropertyList(), "<key>RunAtLoad</key>\n\t<true/>") {
			t.Errorf("%s does not start at boot", p.Name)
		}
	}
}

// setting returns the value of a line in a unit.
func setting(unit, key string) string {
	for line := range strings.Lines(unit) {
		if value, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
