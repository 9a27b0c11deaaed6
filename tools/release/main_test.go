package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// built is a release for this machine. It has packages of two versions with the same programs.
var built release

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	work, err := os.MkdirTemp("", "postern-release-test-")
	if err == nil {
		defer os.RemoveAll(work)
		err = build(work)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func build(work string) error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	const number = "github.com/postern-dev/postern/connector/version.number"
	built = release{
		root: root, work: filepath.Join(work, "work"), out: filepath.Join(work, "out"), time: time.Unix(1795392000, 0).UTC(),
		commit: "abc",
		tags:   "nobadger,nomysql,nopgx", ldflags: "-s -w -X " + number + "=v0.9.0", targets: []target{host}, parts: allParts,
	}
	if built.version, err = parseVersion("v0.9.0"); err != nil {
		return err
	}
	for _, p := range []program{connector, gateway} {
		if err := built.program(context.Background(), p); err != nil {
			return err
		}
	}
	return built.checksums()
}

// needLinux skips a test that needs packages or images for Linux.
func needLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("packages and images are only built for Linux")
	}
}

// needRoot skips a test that needs root and Linux.
func needRoot(t *testing.T) {
	t.Helper()
	needLinux(t)
	if os.Geteuid() != 0 {
		t.Skip("it needs root")
	}
}

// must fails the test if there is an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// read returns the content of a file.
func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return text
}

// command runs a command and returns its output.
func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// A packed file is a file of an archive, as a reader gets it.
type packed struct {
	header *tar.Header
	text   []byte
}

// readTarGz reads all concatenated tar archives of a compressed file.
func readTarGz(t *testing.T, path string) map[string]packed {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	z, err := gzip.NewReader(file)
	must(t, err)
	return readTar(t, z)
}

func readTar(t *testing.T, r io.Reader) map[string]packed {
	t.Helper()
	found := map[string]packed{}
	var names []string
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		var text bytes.Buffer
		if _, err := io.Copy(&text, archive); err != nil {
			t.Fatal(err)
		}
		found[header.Name] = packed{header, text.Bytes()}
		names = append(names, header.Name)
	}
	if len(found) != len(names) {
		t.Errorf("a name occurs twice in %v", names)
	}
	return found
}

// result returns the path of a result for this machine.
func result(name, suffix string) string {
	return filepath.Join(built.out, built.fileName(name, host, suffix))
}

// namesOf returns the names in an archive that do not match a pattern.
func namesOf(files map[string]packed, without string) (names []string) {
	for name := range files {
		if hidden, _ := filepath.Match(without, name); !hidden {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
