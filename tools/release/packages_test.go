package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sassoftware/go-rpmutils"
)

// installedNames are the files of the packages, except manual pages and connectors.
var installedNames = map[string][]string{
	"postern": {
		"etc/postern/Caddyfile", "usr/bin/postern", "usr/lib/postern/postern", "usr/lib/systemd/system/postern.service",
		"usr/share/bash-completion/completions/postern", "usr/share/doc/postern/Caddyfile.example",
		"usr/share/doc/postern/copyright",
		"usr/share/fish/vendor_completions.d/postern.fish", "usr/share/postern/grafana/postern.json",
		"usr/share/postern/prometheus/rules.yml", "usr/share/zsh/*/_postern",
	},
	"postern-connector": {
		"usr/bin/connector", "usr/lib/systemd/system/postern-connector.service",
		"usr/share/bash-completion/completions/connector",
		"usr/share/doc/postern-connector/copyright", "usr/share/fish/vendor_completions.d/connector.fish",
		"usr/share/zsh/*/_connector",
	},
}

// checkNames compares the files and modes of a package. Names of folders end with a slash.
func checkNames(t *testing.T, what, name string, got map[string]int64) {
	t.Helper()
	var rest []string
	pages, connectors := 0, 0
	for path, mode := range got {
		path = strings.TrimPrefix(path, "/")
		switch {
		case strings.HasSuffix(path, "/"):
			continue
		case strings.HasPrefix(path, "usr/share/man/man"):
			pages++
		case strings.HasPrefix(path, "usr/lib/postern/connectors/"):
			connectors++
		default:
			rest = append(rest, regexp.MustCompile(`zsh/[a-z-]+/`).ReplaceAllString(path, "zsh/*/"))
		}
		want := int64(0o644)
		if path == "usr/lib/postern/postern" || path == "usr/bin/connector" {
			want = 0o755
		}
		if path != "usr/bin/postern" && mode&0o7777 != want {
			t.Errorf("%s: %s has mode %o", what, path, mode)
		}
	}
	slices.Sort(rest)
	if !slices.Equal(rest, installedNames[name]) || pages < 5 || (connectors == 1) != (name == "postern") {
		t.Errorf("%s has %q, %d manual pages, %d connectors, want %q", what, rest, pages, connectors, installedNames[name])
	}
}

func TestDeb(t *testing.T) {
	needLinux(t)
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed")
	}
	for name := range installedNames {
		path := result(name, ".deb")
		info := command(t, "dpkg-deb", "-I", path)
		for _, line := range []string{
			" Package: " + name, " Version: 0.9.0", " Architecture: " + host.machine,
			" Section: net", " Maintainer: Postern ",
		} {
			if !strings.Contains(info, line) {
				t.Errorf("the control file of %s lacks %q:\n%s", name, line, info)
			}
		}
		if got := command(t, "dpkg-deb", "-I", path, "md5sums"); strings.Count(got, "\n") < 10 {
			t.Errorf("the sums of %s are %s", name, got)
		}
		files := map[string]int64{}
		for line := range strings.Lines(command(t, "dpkg-deb", "-c", path)) {
			words := strings.Fields(line)
			if words[1] != "root/root" && words[1] != "0/0" {
				t.Errorf("%s: owner %s", name, line)
			}
			files[strings.TrimPrefix(words[5], ".")] = modeOf(words[0])
		}
		checkNames(t, path, name, files)
	}
	if got := command(t, "dpkg-deb", "-I", result("postern", ".deb"), "conffiles"); got != "/etc/postern/Caddyfile\n" {
		t.Errorf("the configuration files are %q", got)
	}
}

// modeOf parses a mode like rwxr-xr-x.
func modeOf(text string) (mode int64) {
	for _, c := range text[1:] {
		mode <<= 1
		if c != '-' {
			mode |= 1
		}
	}
	return mode
}

func TestRPM(t *testing.T) {
	needLinux(t)
	for name := range installedNames {
		path := result(name, ".rpm")
		file, err := os.Open(path)
		must(t, err)
		defer file.Close()
		rpm, err := rpmutils.ReadRpm(file)
		must(t, err)
		nevra, err := rpm.Header.GetNEVRA()
		machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[host.machine]
		if err != nil || nevra.Name != name || nevra.Version != "0.9.0" || nevra.Release != "1" || nevra.Arch != machine {
			t.Errorf("%s is %v, %v", name, nevra, err)
		}
		for _, tag := range []int{rpmutils.POSTIN, rpmutils.PREUN, rpmutils.POSTUN} {
			if script, err := rpm.Header.GetString(tag); err != nil || !strings.Contains(script, "\npackage="+name+"\n") {
				t.Errorf("the script %d of %s is %q, %v", tag, name, script, err)
			}
		}
		infos, err := rpm.Header.GetFiles()
		must(t, err)
		const noreplace = 1<<0 | 1<<4 // RPMFILE_CONFIG, RPMFILE_NOREPLACE
		files := map[string]int64{}
		for _, info := range infos {
			if info.UserName() != "root" || info.GroupName() != "root" ||
				(info.Flags()&noreplace == noreplace) != (info.Name() == "/etc/postern/Caddyfile") {
				t.Errorf("%s: %s:%s, flags %x", info.Name(), info.UserName(), info.GroupName(), info.Flags())
			}
			if info.Mode()&0o170000 != 0o040000 {
				files[info.Name()] = int64(info.Mode())
			}
		}
		checkNames(t, path, name, files)
		payload, err := rpm.PayloadReader()
		must(t, err)
		bytes := 0
		for {
			header, err := payload.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			bytes += int(header.Filesize64())
		}
		if bytes < 5<<20 {
			t.Errorf("%s unpacks to %d bytes", name, bytes)
		}
	}
}

func TestAPK(t *testing.T) {
	needLinux(t)
	for name := range installedNames {
		path := result(name, ".apk")
		files := readTarGz(t, path)
		info := string(files[".PKGINFO"].text)
		machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[host.machine]
		for _, line := range []string{"pkgname = " + name, "pkgver = 0.9.0-r0", "arch = " + machine, "license = Apache-2.0"} {
			if !strings.Contains(info, line+"\n") {
				t.Errorf("%s lacks %q:\n%s", path, line, info)
			}
		}
		for _, script := range []string{".post-install", ".post-upgrade", ".pre-deinstall", ".post-deinstall"} {
			if !bytes.Contains(files[script].text, []byte("\npackage="+name+"\n")) {
				t.Errorf("the script %s of %s is %q", script, path, files[script].text)
			}
		}
		modes := map[string]int64{}
		for name, file := range files {
			if h := file.header; name != ".PKGINFO" && (!h.ModTime.Equal(built.time) || h.Uid != 0) {
				t.Errorf("%s in %s: owner %d, time %v", name, path, h.Uid, h.ModTime)
			}
			if !strings.HasPrefix(name, ".") {
				modes[name] = file.header.Mode
			}
		}
		checkNames(t, path, name, modes)
	}
}

// The scripts also handle the arguments of rpm and apk.
func TestScriptsOfOtherPackageManagers(t *testing.T) {
	needLinux(t)
	const unit = "postern-connector.service"
	const installed = "preset " + unit + "; daemon-reload; --quiet is-enabled " + unit + "; restart " + unit
	const again = "daemon-reload; --quiet is-enabled " + unit + "; restart " + unit
	const upgraded = "daemon-reload; try-restart " + unit // without a start of a stopped service
	for _, test := range []struct{ calls, want string }{
		{"postinstall 1", installed},
		{"postinstall 2", upgraded},
		{"postinstall 0.9.0-r0", installed},
		{"postinstall 0.9.1-r0 0.9.0-r0", upgraded},
		{"postinstall configure ", installed},
		{"postinstall configure 0.9.0", again}, // after a removal
		{"postinstall abort-remove", again},
		{"preremove 0", "stop " + unit + "; disable " + unit},
		{"preremove 1", ""},
		{"preremove 0.9.0-r0", "stop " + unit + "; disable " + unit},
		{"preremove remove", "stop " + unit},
		{"preremove upgrade 0.9.1; postinstall configure 0.9.0", upgraded},
		{"preremove upgrade 0.9.1; postinstall abort-upgrade 0.9.1", upgraded},
	} {
		dir := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(dir, "run/systemd/system"), 0o755))
		write(t, filepath.Join(dir, "systemctl"), systemctl, 0o755)
		for _, name := range []string{"postinstall", "preremove"} {
			text := read(t, filepath.Join(built.root, "packaging", name+".sh"))
			// This simulates a machine with systemd, without its folder, and without a new user.
			script := strings.NewReplacer("/run/", dir+"/run/", "package=postern",
				"package=postern-connector").Replace(string(text))
			write(t, filepath.Join(dir, name), script, 0o755)
		}
		run := exec.Command("sh", "-ec", test.calls)
		run.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "ROOT="+dir)
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", test.calls, err, out)
		}
		if got := calls(t, dir); got != test.want {
			t.Errorf("%s calls systemctl %q, want %q", test.calls, got, test.want)
		}
		if marks, err := filepath.Glob(filepath.Join(dir, "run", "*.upgrade")); err != nil || len(marks) > 0 {
			t.Errorf("%s leaves %v", test.calls, marks)
		}
	}
}

// A first installation prints the next steps; an upgrade prints nothing.
func TestNextSteps(t *testing.T) {
	needLinux(t)
	for _, test := range []struct {
		call, active string // exit code of systemctl is-active
		want         []string
	}{
		{"configure ''", "0", []string{
			"Postern serves http://localhost",
			"1. create the first user with the link of: sudo postern gateway setup-link", "/etc/postern/Caddyfile",
			"restart postern",
		}},
		{"1", "3", []string{"1. start the gateway (systemctl enable --now postern), and create the first user"}},
		{"configure 0.9.0", "0", nil},
		{"2", "0", nil},
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"systemctl": "exit " + test.active, "id": "", "install": ""} {
			write(t, filepath.Join(dir, name), "#!/bin/sh\n"+text+"\n", 0o755)
		}
		run := exec.Command("sh", "-c", "sh "+filepath.Join(built.root, "packaging", "postinstall.sh")+" "+test.call)
		run.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := run.Output()
		if err != nil || len(test.want) == 0 && len(out) > 0 {
			t.Errorf("%s: %v\n%s", test.call, err, out)
		}
		for _, want := range test.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s prints no %q:\n%s", test.call, want, out)
			}
		}
	}
}

// systemd accepts the units. Its analysis rates them as confined.
func TestUnits(t *testing.T) {
	needLinux(t)
	for _, name := range []string{"postern", "postern-connector"} {
		path := filepath.Join(built.root, "packaging", name+".service")
		unit := read(t, path)
		for _, line := range []string{
			"Type=notify", "Restart=on-failure", "StateDirectory=" + name, "RuntimeDirectory=" + name, "UMask=0077",
			"ProtectSystem=strict", "ProtectHome=yes",
			"PrivateTmp=yes", "PrivateDevices=yes", "NoNewPrivileges=yes", "MemoryDenyWriteExecute=yes",
			"SystemCallFilter=@system-service", "WantedBy=multi-user.target",
		} {
			if !bytes.Contains(unit, []byte("\n"+line+"\n")) {
				t.Errorf("%s.service lacks %s", name, line)
			}
		}
		if _, err := exec.LookPath("systemd-analyze"); err != nil {
			continue
		}
		// systemd checks that the program exists. This machine does not have it.
		copied := filepath.Join(t.TempDir(), name+".service")
		text := strings.NewReplacer("/usr/bin/postern", "/bin/true", "/usr/bin/connector", "/bin/true").Replace(string(unit))
		write(t, copied, text, 0o644)
		verify := exec.Command("systemd-analyze", "verify", "--man=no", copied)
		if out, err := verify.CombinedOutput(); err != nil || bytes.Contains(out, []byte(name+".service")) {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}
		out := command(t, "systemd-analyze", "security", "--offline=true", "--no-pager", copied)
		m := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindStringSubmatch(out)
		if m == nil {
			t.Fatalf("systemd-analyze security prints\n%s", out)
		}
		if level, err := strconv.ParseFloat(m[1], 64); err != nil || level > 2.5 {
			t.Errorf("systemd rates %s.service %s, more than 2.5:\n%s", name, m[1], out)
		}
		t.Logf("systemd rates %s.service %s", name, m[1])
	}
}
