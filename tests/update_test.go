package tests

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/harness"
)

// A service is updated under load. No request fails or waits for long, and none is sent
// again.
func TestUpdateUnderLoad(t *testing.T) {
	m := newMachine(t, false)
	streams := m.begin(t)
	l := m.traffic(t, 0)
	l.await(t, upgradeClients)
	p := m.update(t)
	harness.Poll(t, limit, "a restart", func(context.Context) error { // the old process finishes its streams in it
		if _, err := os.Stat(m.asked()); err != nil {
			return errors.New(p.Log())
		}
		return nil
	})
	l.await(t, upgradeClients)
	close(m.release)
	m.whole(t, streams)
	if code := p.WaitExit(t, takeBack); code != 0 {
		t.Errorf("exit code %d", code)
	}
	l.await(t, upgradeClients)
	m.awaitVersion(t, newVersion)
	m.awaitOne(t)
	m.check(t, l)
	if n := m.starts.Load(); n != 2 {
		t.Errorf("the service was started %d times", n)
	}
	for _, want := range []string{
		"Version 0.9.1 is available; this is 0.9.0.", "The service postern-connector runs the new version.",
	} {
		if !strings.Contains(p.Log(), want) {
			t.Errorf("it does not print %q:\n%s", want, p.Log())
		}
	}
	again := m.update(t)
	if code := again.WaitExit(t, limit); code != 0 || !strings.Contains(again.Log(), "nothing to update") {
		t.Errorf("again: code %d, %s", code, again.Log())
	}
	if n := m.starts.Load(); n != 2 {
		t.Errorf("the service was started %d times", n)
	}
}

// An update to a program that does not work changes nothing. No request fails.
func TestBadUpdate(t *testing.T) {
	m := newMachine(t, false)
	url := m.offer.Load().URL
	l := m.traffic(t, 0)
	for name, tt := range map[string]struct {
		prepare func()
		want    string
		slow    bool
	}{
		"does not start": {func() { m.handOut(archiveOf(t, []byte("no program")), url) }, "it does not start", false},
		"ends": {
			func() { m.handOut(archiveOf(t, []byte("#!/bin/sh\necho Error: illegal >&2\nexit 3\n")), url) },
			"(exit status 3): Error: illegal", false,
		},
		"does not connect": {
			func() { m.handOut(archiveOf(t, []byte("#!/bin/sh\nexec sleep 1000\n")), url) },
			"its tunnel is still down after 1m0s", true,
		},
		"another hash": {func() {
			wrong := *m.offer.Load()
			wrong.SHA256 = strings.Repeat("0", 64)
			m.offer.Store(&wrong)
		}, "its SHA-256 is not the one that the gateway announced", false},
		"truncated": {func() {
			longer := *m.offer.Load()
			longer.Size += 1000
			m.offer.Store(&longer)
		}, "run this again", false},
		"invalid": {
			func() { m.offer.Store(&link.Offer{Version: newVersion, URL: "file:///etc/passwd", Size: 1}) },
			"its URL is not one of http or https", false,
		},
		"none": {func() { m.offer.Store(nil) }, "has no connector for linux/", false},
	} {
		if tt.slow && testing.Short() {
			continue
		}
		m.handOut([]byte(strings.Repeat("x", 200)), url)
		tt.prepare()
		p := m.update(t)
		if code := p.WaitExit(t, takeBack); code != 1 || !strings.Contains(p.Log(), tt.want) {
			t.Errorf("%s: exit code %d, %s", name, code, p.Log())
		}
		l.await(t, upgradeClients)
	}
	m.awaitVersion(t, oldVersion)
	m.awaitOne(t)
	m.answered(t, l)
	if m.starts.Load() != 1 {
		t.Error("the service was restarted")
	}
	if left, _ := filepath.Glob(filepath.Join(m.folder, "bin", "*")); len(left) != 1 {
		t.Errorf("the program's folder has %v", left)
	}
}

// answered ends the load, and checks that all requests were answered.
func (u *upgrade) answered(t *testing.T, l *traffic) {
	t.Helper()
	for _, o := range l.end() {
		if o.status != http.StatusOK || o.err != nil {
			t.Errorf("request %s: status %d, %v, %s", o.id, o.status, o.err, clip(o.body))
		}
	}
	u.once(t, l)
}

// An update that is killed at any moment leaves a connector that works, and loses no
// request. The next update completes it.
func TestUpdateKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("a replaced process takes half a minute to take its tunnel back")
	}
	for _, tt := range []struct {
		when  string
		await func(t *testing.T, m *machine, p *harness.Process)
	}{
		{"downloading", func(t *testing.T, m *machine, _ *harness.Process) {
			harness.Poll(t, limit, "a download", func(context.Context) error {
				if found, _ := filepath.Glob(filepath.Join(m.folder, "tmp", "connector-*", "archive")); len(found) == 0 {
					return errors.New("none")
				}
				return nil
			})
		}},
		{"the bridge starts", func(t *testing.T, m *machine, _ *harness.Process) {
			harness.Poll(t, limit, "a bridge", func(context.Context) error {
				if len(m.processes("--until-replaced")) == 0 {
					return errors.New("none")
				}
				return nil
			})
		}},
		{"the bridge is online", func(t *testing.T, m *machine, _ *harness.Process) { m.awaitVersion(t, newVersion) }},
		{"replaced", func(t *testing.T, _ *machine, p *harness.Process) { p.WaitLog(t, "has replaced", limit) }},
		{"restarting", nil},
	} {
		t.Run(tt.when, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, tt.when == "downloading")
			killed := make(chan struct{})
			if tt.await == nil {
				asked := make(chan struct{})
				var once sync.Once
				wait := func() { once.Do(func() { close(asked); <-killed }) }
				m.onAsked.Store(&wait)
				tt.await = func(*testing.T, *machine, *harness.Process) { <-asked }
			}
			l := m.traffic(t, 0)
			l.await(t, upgradeClients)
			p := m.update(t)
			tt.await(t, m, p)
			p.Kill()
			close(killed)
			l.await(t, upgradeClients)
			m.awaitOne(t)
			l.await(t, upgradeClients)
			if tt.when == "downloading" {
				close(m.hold)
			}
			again := m.update(t)
			if code := again.WaitExit(t, takeBack); code != 0 {
				t.Errorf("the next update ended with code %d: %s", code, again.Log())
			}
			m.awaitVersion(t, newVersion)
			m.awaitOne(t)
			m.answered(t, l)
			if left, _ := filepath.Glob(filepath.Join(m.folder, "bin", "*")); len(left) != 1 {
				t.Errorf("the program's folder has %v", left)
			}
		})
	}
}

// A process without a service gets its tunnel back after an update, and no request is lost.
func TestUpdateWithoutService(t *testing.T) {
	if testing.Short() {
		t.Skip("a replaced process takes half a minute to take its tunnel back")
	}
	m := newMachine(t, false)
	if err := os.RemoveAll(filepath.Join(m.folder, ".config")); err != nil {
		t.Fatal(err)
	}
	l := m.traffic(t, 0)
	l.await(t, upgradeClients)
	p := m.update(t, "--config", m.cons[0].Config)
	if code := p.WaitExit(t, takeBack); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if want := fmt.Sprintf("Process %d still runs version %s; restart it", m.pid(),
		oldVersion); !strings.Contains(p.Log(), want) {
		t.Errorf("it does not print %q:\n%s", want, p.Log())
	}
	l.await(t, upgradeClients)
	m.awaitVersion(t, oldVersion)
	m.awaitOne(t)
	m.answered(t, l)
	if m.starts.Load() != 1 {
		t.Error("the process was restarted")
	}
}
