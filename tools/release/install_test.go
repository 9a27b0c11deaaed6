package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tools are the programs that the scripts of the packages use.
var tools = []string{"sh", "id", "install", "rm", "rmdir", "echo", "useradd", "userdel", "find"}

// systemctl replaces systemd's program and logs its calls. A unit is enabled unless the last call of `enable`
// or `disable` was `disable`.
const systemctl = `#!/bin/sh
echo "$*" >>$ROOT/systemctl.log
case $1 in
preset) rm -f $ROOT/disabled ;;
disable) echo >$ROOT/disabled ;;
--quiet) [ ! -e $ROOT/disabled ] ;;
esac
`

// newRoot returns a minimal root folder: a shell, a few tools, and no packages but passwd.
func newRoot(t *testing.T) string {
	t.Helper()
	needRoot(t)
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("dpkg is not installed")
	}
	root := t.TempDir()
	must(t, os.Chmod(root, 0o755))
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n",
		"etc/shadow": "root:*:19000:0:99999:7:::\n", "etc/gshadow": "root:*::\n",
		"etc/login.defs": "USERGROUPS_ENAB yes\nSYS_UID_MAX 999\n", "etc/nsswitch.conf": "passwd: files\ngroup: files\n",
		"var/lib/dpkg/available": "", "dev/null": "",
		"var/lib/dpkg/status": "Package: passwd\nStatus: install ok installed\nPriority: required\nSection: " +
			"admin\nMaintainer: x\nArchitecture: all\nVersion: 1\nDescription: x\n\n",
	} {
		write(t, filepath.Join(root, name), text, 0o644)
	}
	for _, name := range []string{"updates", "info", "triggers"} {
		must(t, os.Mkdir(filepath.Join(root, "var/lib/dpkg", name), 0o755))
	}
	for _, tool := range tools {
		copyProgram(t, root, tool)
	}
	return root
}

// copyProgram copies a program and its libraries.
func copyProgram(t *testing.T, root, name string) {
	t.Helper()
	found, err := exec.LookPath(name)
	must(t, err)
	paths := []string{found}
	for word := range strings.FieldsSeq(command(t, "ldd", found)) {
		if filepath.IsAbs(word) {
			paths = append(paths, word)
		}
	}
	for i, path := range paths {
		text := read(t, path)
		if i == 0 {
			path = "/bin/" + name
		}
		write(t, filepath.Join(root, path), string(text), 0o755)
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	must(t, create(path, entry{text: []byte(text)}.copyTo))
	must(t, os.Chmod(path, mode))
}

// dpkg runs dpkg on the root folder.
func dpkg(t *testing.T, root string, args ...string) string {
	t.Helper()
	return command(t, "env", append([]string{"PATH=/bin:/sbin:/usr/bin:/usr/sbin", "dpkg", "--root=" + root}, args...)...)
}

// exists reports whether a path exists in the root folder.
func exists(root, path string) bool {
	_, err := os.Lstat(filepath.Join(root, path))
	return err == nil
}

// calls returns the calls of systemctl since the previous call of this function.
func calls(t *testing.T, root string) string {
	t.Helper()
	path := filepath.Join(root, "systemctl.log")
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	os.Remove(path)
	return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "; ")
}

// next returns a package with the same program and the next version.
func next(t *testing.T, p program, format string) string {
	t.Helper()
	r := built
	r.out = t.TempDir()
	var err error
	if r.version, err = parseVersion("v0.9.1"); err != nil {
		t.Fatal(err)
	}
	must(t, r.pack(p, host, format))
	return filepath.Join(r.out, r.fileName(p.pack, host, "."+format))
}

// A gateway is installed, upgraded, removed, installed again and purged. An upgrade keeps changes of the
// configuration, and a removal keeps the data.
func TestInstallGateway(t *testing.T) {
	root := newRoot(t)
	write(t, filepath.Join(root, "bin/systemctl"), systemctl, 0o755)
	must(t, os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755))
	config, data := filepath.Join(root, "etc/postern/Caddyfile"), filepath.Join(root, "var/lib/postern/gateway.db")

	dpkg(t, root, "--install", result("postern", ".deb"))
	if got, want := calls(t, root), "preset postern.service; daemon-reload; --quiet is-enabled postern.service; restart "+
		"postern.service; --quiet is-active postern.service"; got != want {
		t.Errorf("the installation calls systemctl %s, want %s", got, want)
	}
	if got := command(t, "chroot", root, "/usr/bin/postern", "version"); !strings.HasPrefix(got, "postern v0.9.0\n") {
		t.Errorf("the installed program prints %q", got)
	}
	if got := command(t, "chroot", root, "/bin/find", "/var/lib/postern", "-user", "postern", "-group", "postern",
		"-perm", "0750"); got != "/var/lib/postern\n" {
		t.Errorf("the folder for data is not the user's: %q", got)
	}
	write(t, config, "# mine\n", 0o644)
	write(t, data, "keys", 0o600)

	dpkg(t, root, "--force-confold", "--install", next(t, gateway, "deb"))
	if got, want := calls(t, root), "daemon-reload; daemon-reload; try-restart postern.service"; got != want {
		t.Errorf("the upgrade calls systemctl %s, want %s", got, want)
	}
	checkText(t, config, "# mine\n")
	checkText(t, data, "keys")
	if exists(root, "usr/lib/postern/connectors/connector_0.9.1_"+host.system+"_"+host.machine+".tar.gz") ||
		!exists(root, "usr/lib/postern/connectors") {
		t.Error("the connectors are not those of the package")
	}

	dpkg(t, root, "--remove", "postern")
	if got, want := calls(t, root), "stop postern.service; daemon-reload"; got != want {
		t.Errorf("the removal calls systemctl %s, want %s", got, want)
	}
	checkText(t, config, "# mine\n")
	checkText(t, data, "keys")
	if exists(root, "usr/lib/postern") || exists(root, "usr/bin/postern") {
		t.Error("the removal leaves the program")
	}

	dpkg(t, root, "--install", result("postern", ".deb"))
	if got := calls(t, root); !strings.HasSuffix(got, "; restart postern.service") {
		t.Errorf("after a removal, the installation calls systemctl %s", got)
	}
	write(t, filepath.Join(root, "etc/systemd/system/multi-user.target.wants/postern.service"), "", 0o644)
	dpkg(t, root, "--purge", "postern")
	for _, path := range []string{
		"var/lib/postern", "etc/postern",
		"etc/systemd/system/multi-user.target.wants/postern.service",
	} {
		if exists(root, path) {
			t.Errorf("the purge leaves %s", path)
		}
	}
	checkText(t, filepath.Join(root, "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")
	checkText(t, filepath.Join(root, "etc/group"), "root:x:0:\n")
}

// Without systemd, as in a container, nothing fails. A disabled service stays disabled, and a removal keeps
// the connector's token.
func TestInstallConnector(t *testing.T) {
	root := newRoot(t)
	config := filepath.Join(root, "etc/postern/connector.json")
	if out := dpkg(t, root, "--install", result("postern-connector", ".deb")); !strings.Contains(out,
		"connector pair https://") {
		t.Errorf("the installation does not print the next steps:\n%s", out)
	}
	write(t, config, "{}", 0o600)
	if got := command(t, "chroot", root, "/usr/bin/connector", "--version"); !strings.HasPrefix(got,
		"connector v0.9.0\n") {
		t.Errorf("the installed program prints %q", got)
	}

	write(t, filepath.Join(root, "bin/systemctl"), systemctl, 0o755)
	must(t, os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755))
	if out := dpkg(t, root, "--install", next(t, connector, "deb")); strings.Contains(out, "connector pair https://") {
		t.Errorf("the upgrade prints how to pair:\n%s", out)
	}
	if got := calls(t, root); !strings.HasSuffix(got, "daemon-reload; try-restart postern-connector.service") {
		t.Errorf("the upgrade calls systemctl %s", got)
	}
	dpkg(t, root, "--remove", "postern-connector")
	checkText(t, config, "{}")
	dpkg(t, root, "--purge", "postern-connector")
	if exists(root, "etc/postern") {
		t.Error("the purge leaves the token")
	}
}

func checkText(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s has %q, %v; want %q", path, got, err, want)
	}
}
