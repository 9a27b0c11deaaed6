package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// howToGet says where etcd comes from. Debian's package is older.
const howToGet = "\nUnpack a release of https://github.com/etcd-io/etcd/releases, and put its program etcd into PATH or name it with --etcd"

var versionLine = regexp.MustCompile(`(?m)^etcd Version: (\d+)\.(\d+)\S*`)

// findEtcd returns the path of etcd, and fails unless its version is 3.6 or later.
func findEtcd(ctx context.Context, named string) (string, error) {
	path, err := exec.LookPath(cmp.Or(named, "etcd"))
	switch {
	case err != nil && named == "":
		return "", errors.New("a cluster needs etcd 3.6 or later, which is not in PATH." + howToGet)
	case err != nil:
		return "", fmt.Errorf("finding the program of --etcd: %w."+howToGet, err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", fmt.Errorf("finding etcd: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	version := versionLine.FindSubmatch(out)
	if err != nil || version == nil {
		return "", fmt.Errorf("%s is not etcd: it does not print its version with --version."+howToGet, path)
	}
	major, _ := strconv.Atoi(string(version[1]))
	minor, _ := strconv.Atoi(string(version[2]))
	if major < 3 || major == 3 && minor < 6 {
		return "", fmt.Errorf("%s is etcd %s.%s, and a cluster needs 3.6 or later."+howToGet, path, version[1], version[2])
	}
	return path, nil
}

// startEtcd starts etcd with one member, whose data is in dir, and waits until it serves.
func (u *Run) startEtcd(ctx context.Context, program, dir string) (url string, err error) {
	const clients, peers = 2379, 2380 // the usual ports
	at := [2]string{}
	for i, port := range []int{clients, peers} {
		if at[i], err = chooseTCP(port); err != nil {
			return "", fmt.Errorf("finding a port for etcd: %w", err)
		}
	}
	url, peer := "http://"+at[0], "https://"+at[1]
	c := &child{
		Process: Process{Name: "etcd", URL: url, Log: filepath.Join(dir, "etcd.log")}, grace: etcdGrace,
		argv: []string{
			program, "--name", "etcd", "--data-dir", filepath.Join(dir, "etcd"), "--log-level", "warn",
			"--listen-client-urls", url, "--advertise-client-urls", url,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "etcd=" + peer,
			// A page in a browser of this machine can send requests to these ports. Their Host is
			// of its choice if it has a DNS name that leads here, but not with TLS.
			"--enable-grpc-gateway=false", "--host-whitelist", "127.0.0.1,localhost", "--peer-auto-tls",
		},
	}
	if err := u.start(c); err != nil {
		return "", err
	}
	u.stops = append(u.stops, func() { stopAll([]*child{c}) })
	u.ready.Etcd = &c.Process
	u.ready.note("every program on this machine can read and change the store, in etcd at %s", url)
	return url, c.await(ctx, func() bool { return answersOK(ctx, url+"/health") })
}

// chooseTCP prefers a port of the loopback interface.
func chooseTCP(preferred int) (string, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(preferred)))
	if err != nil {
		ln, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// answersOK reports whether a GET is answered with 200.
func answersOK(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}
