package tests

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

const (
	oldVersion, newVersion = "0.9.0", "0.9.1"
	// restartLimit is the maximum time until a service that restarts is online, or the reason is known.
	restartLimit = time.Minute + limit
)

// builds returns the folder with two versions of the connector, named after them.
var builds = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs("..")
	folder := filepath.Join(root, ".cache", "versions")
	for _, version := range []string{oldVersion, newVersion} {
		build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(folder, version), "-ldflags",
			"-s -w -X github.com/postern-dev/postern/connector/version.number="+version, "./connector")
		build.Dir = root
		if out, buildErr := build.CombinedOutput(); buildErr != nil {
			err = errors.Join(err, fmt.Errorf("%w\n%s", buildErr, out))
		}
	}
	return folder, err
})

// build returns a version of the connector's program.
func build(t *testing.T, version string) []byte {
	t.Helper()
	folder, err := builds()
	must(t, err)
	return read(t, filepath.Join(folder, version))
}

// handOut makes a program the newest connector of the gateway, which has this version.
func (s *shop) handOut(t *testing.T, program []byte, version string) {
	t.Helper()
	s.archive = filepath.Join(filepath.Dir(s.archive), "connector_"+version+"_linux_"+runtime.GOARCH+".tar.gz")
	file, err := os.Create(s.archive)
	must(t, err)
	packer, _ := gzip.NewWriterLevel(file, gzip.NoCompression) // the level is valid
	archive := tar.NewWriter(packer)
	err = archive.WriteHeader(&tar.Header{Name: "connector", Mode: 0o755, Size: int64(len(program))})
	_, writeErr := archive.Write(program)
	must(t, errors.Join(err, writeErr, archive.Close(), packer.Close(), file.Close()))
}

// again returns the line that replaces the program.
func (s *shop) again(o offer) string {
	line, _, _ := strings.Cut(o.Commands.Install, " -s -- ")
	return line
}

// The install line again replaces the program of a service, and ends when that is online. Answers that have begun are
// whole. Meanwhile, new requests are refused, and clients are asked to try again soon. The line with its old code does
// the same.
func TestInstallAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Options{})
	s.handOut(t, build(t, oldVersion), oldVersion)
	c, o := newComputer(t, s, false), s.offer(t)
	p := c.start(t, "", "sh", "-c", s.line(o, "sh", "--service"))
	s.approve(t, o)
	before := c.config(t)
	c.ends(t, p, 0, "Installed the service postern-connector", "The service runs version "+oldVersion+": online")
	u := s.upgrade(t)

	s.handOut(t, build(t, newVersion), newVersion)
	for _, line := range []string{s.again(o), s.line(o, "sh", "")} {
		u.release = make(chan struct{})
		u.answer()
		streams := u.begin(t)
		p = c.start(t, "", "sh", "-c", line)
		p.WaitLog(t, "Restarting the service", limit)
		harness.Poll(t, limit, "a refused request", func(context.Context) error {
			a := u.Client.Post(t, harness.Chat("m", `,"user":"meanwhile"`))
			if a.Status == http.StatusOK {
				return errors.New("it is answered")
			}
			if after, err := strconv.Atoi(a.Header.Get("Retry-After")); a.Status != http.StatusServiceUnavailable ||
				after < 1 || err != nil {
				t.Errorf("status %d, Retry-After %q: %s", a.Status, a.Header.Get("Retry-After"), a.Body)
			}
			return nil
		})
		close(u.release)
		u.whole(t, streams)
		c.ends(t, p, 0, "Installed connector "+newVersion, "The service runs version "+newVersion+": online")
		served(t, u.Client.Post(t, harness.Chat("m", `,"user":"afterwards"`)), "afterwards")
		u.awaitVersion(t, newVersion)
	}
	if c.config(t) != before {
		t.Error("the configuration has changed")
	}
}

// A program that does not start changes nothing. With another one that is not online, the line ends with the reason.
func TestInstallAgainFails(t *testing.T) {
	t.Parallel()
	s := newShop(t, harness.Options{})
	c, o := newComputer(t, s, false), s.offer(t)
	p := c.start(t, "", "sh", "-c", s.line(o, "sh", "--service"))
	s.approve(t, o)
	c.config(t)
	c.ends(t, p, 0)
	program := filepath.Join(c.dir, "home", ".local", "bin", "connector")
	before := read(t, program)
	s.handOut(t, []byte("#!/bin/sh\nexit 3\n"), newVersion)
	c.ends(t, c.start(t, "", "sh", "-c", s.again(o)), 1, "does not start on this machine; nothing has changed")
	if string(read(t, program)) != string(before) {
		t.Error("the program has changed")
	}
	s.handOut(t, []byte("#!/bin/sh\n[ \"$1\" != run ] || { echo Error: illegal instruction >&2; exit 1; }\nexec "+
		filepath.Join(s.Bin(), "connector")+" \"$@\"\n"), newVersion)
	p = c.start(t, "", "sh", "-c", s.again(o))
	c.ends(t, p, 1, "the service has restarted, but the tunnel is still down after 5s: no connector is running",
		"see `journalctl --user -u postern-connector`")
}

// upgrade returns long streams and load for the only connector.
func (s *shop) upgrade(t *testing.T) *upgrade {
	t.Helper()
	u := &upgrade{release: make(chan struct{}), pair: &pair{Gateway: s.Gateway, Client: s.client}}
	u.ups = [2]*upstream.Server{s.up, upstream.Start(t)}
	u.answer()
	var list []struct{ ID string }
	s.Manage(t, http.MethodGet, "/connectors", nil, &list)
	if len(list) != 1 {
		t.Fatalf("the connectors are %v", list)
	}
	for _, name := range []string{"m", "story"} {
		s.Manage(t, http.MethodPut, "/deployments/"+name, map[string]any{"connectors": []string{list[0].ID}}, nil)
	}
	return u
}

// awaitVersion waits until the connector is online with a version.
func (u *upgrade) awaitVersion(t *testing.T, want string) {
	t.Helper()
	harness.Poll(t, restartLimit, "the connector having version "+want, func(context.Context) error {
		var list []struct{ State, Version string }
		u.Manage(t, http.MethodGet, "/connectors", nil, &list)
		if len(list) != 1 || list[0].State != "online" || list[0].Version != want {
			return fmt.Errorf("it is %v", list)
		}
		return nil
	})
}
