package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk" // registers the format
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// formats are the formats of packages.
var formats = []string{"deb", "rpm", "apk"}

const homepage = "https://github.com/postern-dev/postern"

// installed returns the entries of a program's package. The gateway finds the connectors next to its
// executable.
func (r *release) installed(p program, t target, format string) []entry {
	packaging := func(name string) string { return filepath.Join(r.root, "packaging", name) }
	entries := []entry{
		{name: "etc/postern", mode: fs.ModeDir | 0o755},
		{name: "usr/lib/systemd/system/" + p.pack + ".service", mode: 0o644, source: packaging(p.pack + ".service")},
		{name: "usr/share/doc/" + p.pack + "/copyright", mode: 0o644, source: filepath.Join(r.root, "LICENSE")},
	}
	entries = append(entries, r.executables(p, t)...)
	entries = append(entries, folder("usr/share/man/man"+p.section, r.manual(p), "*.gz")...)
	zsh := "usr/share/zsh/site-functions/"
	if format == "deb" {
		zsh = "usr/share/zsh/vendor-completions/"
	}
	for i, name := range []string{
		"usr/share/bash-completion/completions/" + p.name, zsh + "_" + p.name,
		"usr/share/fish/vendor_completions.d/" + p.name + ".fish",
	} {
		entries = append(entries, entry{name: name, mode: 0o644, source: r.completion(p, i)})
	}
	if p.name == gateway.name {
		entries = append(entries,
			entry{name: "etc/postern/Caddyfile", mode: 0o644, source: packaging("Caddyfile"), config: true},
			entry{
				name: "usr/share/doc/postern/Caddyfile.example", mode: 0o644,
				source: filepath.Join(r.root, "Caddyfile.example"),
			})
		entries = append(entries, r.monitoring("usr/share/postern")...)
	}
	return entries
}

// executables returns the entries that a program needs to run, in packages and images.
func (r *release) executables(p program, t target) []entry {
	if p.name != gateway.name {
		return []entry{{name: "usr/bin/" + p.name, mode: 0o755, source: r.compiled(p, t)}}
	}
	return append(r.connectors("usr/lib/postern/connectors"),
		entry{name: "usr/lib/postern/postern", mode: 0o755, source: r.compiled(p, t)},
		entry{name: "usr/bin/postern", link: "../lib/postern/postern"})
}

// pack writes a package.
func (r *release) pack(p program, t target, format string) error {
	info, err := r.packageInfo(p, t, format)
	if err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return fmt.Errorf("packing %s: %w", p.name, err)
	}
	return create(filepath.Join(r.out, r.fileName(p.pack, t, "."+format)),
		func(w io.Writer) error { return packager.Package(info, w) })
}

func (r *release) packageInfo(p program, t target, format string) (*nfpm.Info, error) {
	info := &nfpm.Info{
		Name: p.pack, Arch: strings.Replace(t.machine, "armv7", "arm7", 1), Platform: t.system, Version: r.version.text,
		Section: "net", Priority: "optional", Maintainer: "Postern <postern@users.noreply.github.com>", Vendor: "Postern",
		Description: p.summary, Homepage: homepage, License: "Apache-2.0", DisableGlobbing: true, MTime: r.time,
	}
	switch format {
	case "deb":
		info.Deb.Compression = "gzip:6"
	case "rpm":
		info.RPM.Compression, info.RPM.BuildHost = "gzip:6", "localhost"
	case "apk":
		info.Version, info.VersionSchema, info.Release = r.version.apk, "none", "0"
	}
	if p.name == gateway.name { // for postinstall.sh, which creates its user
		info.Depends = map[string][]string{"deb": {"passwd"}, "rpm": {"/usr/sbin/useradd"}}[format]
	}
	for _, e := range sorted(r.installed(p, t, format)) {
		info.Contents = append(info.Contents, r.content(e))
	}
	for name, script := range map[string]*string{
		"postinstall": &info.Scripts.PostInstall, "preremove": &info.Scripts.PreRemove,
		"postremove": &info.Scripts.PostRemove,
	} {
		path, err := r.script(p, t, format, name)
		if err != nil {
			return nil, err
		}
		*script = path
	}
	info.APK.Scripts.PostUpgrade = info.Scripts.PostInstall
	return nfpm.WithDefaults(info), nil
}

// content returns an entry in the form of nfpm.
func (r *release) content(e entry) *files.Content {
	c := &files.Content{
		Source: e.source, Destination: path.Join("/", e.name),
		FileInfo: &files.ContentFileInfo{Mode: e.mode.Perm(), Owner: "root", Group: "root", MTime: r.time},
	}
	switch {
	case e.mode.IsDir():
		c.Type = files.TypeDir
	case e.link != "":
		c.Type, c.Source = files.TypeSymlink, e.link
	case e.config:
		c.Type = files.TypeConfigNoReplace
	}
	return c
}

// script writes a script of packages with the name of the package, and returns its path.
func (r *release) script(p program, t target, format, name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "packaging", name+".sh"))
	if err != nil {
		return "", fmt.Errorf("reading a script of the package: %w", err)
	}
	const line = "\npackage="
	before, after, found := strings.Cut(string(text), line)
	_, after, ended := strings.Cut(after, "\n")
	if !found || !ended {
		return "", fmt.Errorf("packaging/%s.sh lacks the line with the name of the package", name)
	}
	path := filepath.Join(r.work, "scripts", fmt.Sprintf("%s-%s-%s-%s", p.pack, t.machine, format, name))
	if err := create(path, entry{text: []byte(before + line + p.pack + "\n" + after)}.copyTo); err != nil {
		return "", err
	}
	return path, os.Chtimes(path, r.time, r.time) // an apk contains the times of its scripts
}
