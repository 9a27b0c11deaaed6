package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// etcdModule has etcd's server among its dependencies.
const etcdModule = "tests/cluster"

// EtcdProgram returns the path of etcd, which the first call builds into .cache.
var EtcdProgram = sync.OnceValues(func() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	const server = "go.etcd.io/etcd/server/v3"
	module := filepath.Join(root, etcdModule)
	list := exec.Command("go", "list", "-m", "-f", "{{.Version}}", server)
	list.Dir = module
	version, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("finding the version of etcd: %w", err)
	}
	path := filepath.Join(root, ".cache", "etcd-"+strings.TrimSpace(string(version)))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("creating the cache folder: %w", err)
	}
	unlock, err := Lock(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, server)
	build.Dir, build.Env = module, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building etcd: %w\n%s", err, out)
	}
	return path, nil
})

// An EtcdMember has the addresses of a member of an etcd cluster.
type EtcdMember struct {
	Name      string
	URL, Peer string // for clients, and for other members
	Initial   string // the first members: name=peer,…
}

// Command returns a command that runs the member with its data in a folder. It does not wait
// for the disk: the machine does not crash.
func (m EtcdMember) Command(dir string, flags ...string) (func() *exec.Cmd, error) {
	path, err := EtcdProgram()
	if err != nil {
		return nil, err
	}
	args := append([]string{
		"--name", m.Name, "--data-dir", filepath.Join(dir, m.Name+".etcd"), "--log-level", "warn",
		"--listen-client-urls", m.URL, "--advertise-client-urls", m.URL,
		"--listen-peer-urls", m.Peer, "--initial-advertise-peer-urls", m.Peer, "--initial-cluster", m.Initial,
		"--unsafe-no-fsync",
	}, flags...)
	return func() *exec.Cmd { return exec.Command(path, args...) }, nil
}
