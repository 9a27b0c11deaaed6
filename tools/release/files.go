package main

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// entry is a file, a folder or a symbolic link in an archive, a package or an image.
type entry struct {
	name   string // without a leading slash
	mode   fs.FileMode
	source string // path of the content
	text   []byte // content without a source
	link   string // target of a symbolic link
	owner  int    // user and group
	config bool   // a configuration file, which the user may change
}

// archived returns the entries of a program's archive, which are all in one folder.
func (r *release) archived(p program, t target) []entry {
	entries := []entry{
		{name: t.executable(p), mode: 0o755, source: r.compiled(p, t)},
		{name: "LICENSE", mode: 0o644, source: filepath.Join(r.root, "LICENSE")},
	}
	for i := range shells {
		if windows := shells[i].shell == "powershell"; windows == (t.system == "windows") {
			file := r.completion(p, i)
			entries = append(entries, entry{name: "completions/" + filepath.Base(file), mode: 0o644, source: file})
		}
	}
	entries = append(entries, folder("man", r.manual(p), "*."+p.section)...)
	if p.name == gateway.name {
		entries = append(entries, entry{name: "Caddyfile", mode: 0o644, source: filepath.Join(r.root, "Caddyfile.example")})
		entries = append(entries, r.monitoring("")...)
		entries = append(entries, r.connectors("connectors")...)
	}
	return entries
}

// monitoring returns the entries of the dashboard and the rules, in a folder.
func (r *release) monitoring(name string) []entry {
	return append(folder(path.Join(name, "grafana"), filepath.Join(r.root, "packaging", "grafana"), "*.json"),
		folder(path.Join(name, "prometheus"), filepath.Join(r.root, "packaging", "prometheus"), "*.yml")...)
}

// folder returns entries for the files of a folder whose names match.
func folder(name, source, pattern string) (entries []entry) {
	paths, err := filepath.Glob(filepath.Join(source, pattern))
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for _, file := range paths {
		entries = append(entries, entry{name: path.Join(name, filepath.Base(file)), mode: 0o644, source: file})
	}
	return entries
}

// connectors returns the connectors' archives, which the gateway offers for download.
func (r *release) connectors(name string) []entry {
	return folder(name, r.connectorArchives(), "connector_*")
}

// connectorArchives is the folder of the connectors' archives.
func (r *release) connectorArchives() string { return filepath.Join(r.work, "connectors") }

// fileName returns the file name of a result.
func (r *release) fileName(name string, t target, suffix string) string {
	return fmt.Sprintf("%s_%s_%s_%s%s", name, r.version.text, t.system, t.machine, suffix)
}

// archive writes a program's archive. The connectors' archives are always written, because the gateway
// includes them.
func (r *release) archive(p program, t target) error {
	write, suffix := writeTarGz, ".tar.gz"
	if t.system == "windows" {
		write, suffix = writeZip, ".zip"
	}
	name := r.fileName(p.name, t, suffix)
	written, wanted := filepath.Join(r.out, name), slices.Contains(r.parts, "archives")
	if p.name == connector.name {
		written = filepath.Join(r.connectorArchives(), name)
	} else if !wanted {
		return nil
	}
	err := create(written, func(w io.Writer) error { return write(w, r.archived(p, t), r.time) })
	if err != nil || p.name != connector.name || !wanted {
		return err
	}
	return create(filepath.Join(r.out, name), entry{source: written}.copyTo)
}

// create writes a file, and creates its folder if necessary.
func create(path string, write func(io.Writer) error) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		var file *os.File
		if file, err = os.Create(path); err == nil {
			err = cmp.Or(write(file), file.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

func writeTarGz(w io.Writer, entries []entry, modified time.Time) error {
	z := gzip.NewWriter(w)
	if err := writeTar(z, entries, modified); err != nil {
		return err
	}
	return z.Close()
}

// writeTar writes entries, sorted by name.
func writeTar(w io.Writer, entries []entry, modified time.Time) error {
	archive := tar.NewWriter(w)
	for _, e := range sorted(entries) {
		header := &tar.Header{
			Name: e.name, Mode: int64(e.mode.Perm()), Uid: e.owner, Gid: e.owner, ModTime: modified,
			Format: tar.FormatPAX,
		}
		switch {
		case e.mode.IsDir():
			header.Typeflag, header.Name = tar.TypeDir, e.name+"/"
			if e.mode&fs.ModeSticky != 0 {
				header.Mode |= 0o1000
			}
		case e.link != "":
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, e.link, 0o777
		default:
			header.Typeflag = tar.TypeReg
		}
		size, err := e.size()
		if err != nil {
			return err
		}
		header.Size = size
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if err := e.copyTo(archive); err != nil {
			return err
		}
	}
	return archive.Close()
}

func writeZip(w io.Writer, entries []entry, modified time.Time) error {
	archive := zip.NewWriter(w)
	for _, e := range sorted(entries) {
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: modified}
		header.SetMode(e.mode)
		file, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if err := e.copyTo(file); err != nil {
			return err
		}
	}
	return archive.Close()
}

func sorted(entries []entry) []entry {
	return slices.SortedFunc(slices.Values(entries), func(a, b entry) int { return cmp.Compare(a.name, b.name) })
}

// size returns the size of the content.
func (e entry) size() (int64, error) {
	if e.source == "" {
		return int64(len(e.text)), nil
	}
	info, err := os.Stat(e.source)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// copyTo writes the content.
func (e entry) copyTo(w io.Writer) error {
	if e.source == "" {
		_, err := w.Write(e.text)
		return err
	}
	file, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(w, file)
	return err
}
