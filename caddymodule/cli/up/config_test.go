package up

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/rig/freeport"
)

func TestChooseHTTP(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)

	for _, listen := range []string{"0", "localhost:0", ":0", "127.0.0.1:0"} {
		a, err := chooseHTTP(listen)
		if err != nil {
			t.Errorf("%q: %v", listen, err)
			continue
		}
		name := "localhost"
		if listen == "127.0.0.1:0" {
			name = "127.0.0.1"
		}
		if a.port == 0 || a.hosts[0] != "127.0.0.1" || a.url() != "http://"+name+":"+strconv.Itoa(a.port) {
			t.Errorf("%q: %+v", listen, a)
		}
	}
	for _, listen := range []string{port, "localhost:" + port, "127.0.0.1:" + port} {
		if _, err := chooseHTTP(listen); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%q: error %v, want that the port is taken", listen, err)
		}
	}
	for _, listen := range []string{
		"x", "localhost:http", "localhost:70000", "0.0.0.0:8080", "192.168.1.2:8080",
		"gw.example.com:443",
	} {
		if _, err := chooseHTTP(listen); !errors.As(err, new(UsageError)) {
			t.Errorf("%q: error %v, want a usage error", listen, err)
		}
	}
}

// Without --listen, a taken port is skipped.
func TestChooseFreePort(t *testing.T) {
	for port := firstPort; port < firstPort+2; port++ {
		if ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil { // otherwise another program has it
			defer ln.Close()
		}
	}
	a, err := chooseAddresses("", 0)
	if err != nil || a.port < firstPort+2 || a.port > lastPort || a.hosts[0] != "127.0.0.1" || a.name != "localhost" {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := chooseAddresses("localhost:"+strconv.Itoa(firstPort), 0); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a given port: %v", err)
	}
}

func TestChooseUDP(t *testing.T) {
	free, err := freeport.Addr()
	must(t, err)
	conn, err := net.ListenPacket("udp", free)
	must(t, err)
	taken := conn.LocalAddr().(*net.UDPAddr).Port
	got, err := chooseUDP(taken)
	if err != nil || got == conn.LocalAddr().String() || !netip.MustParseAddrPort(got).Addr().IsLoopback() {
		t.Errorf("with the port taken: %q, %v", got, err)
	}
	want := conn.LocalAddr().String()
	_ = conn.Close()
	if got, err := chooseUDP(taken); err != nil || got != want {
		t.Errorf("with the port free: %q, %v; want %q", got, err, want)
	}
}

func TestChooseAdmin(t *testing.T) {
	ln, err := freeport.Listen()
	must(t, err)
	preferred := ln.Addr().String()
	if got, err := chooseAdmin(preferred); err != nil || got == preferred || !strings.HasPrefix(got, "localhost:") {
		t.Errorf("with the port taken: %q, %v", got, err)
	}
	_ = ln.Close()
	for _, preferred := range []string{preferred, "unix//run/caddy.sock"} {
		if got, err := chooseAdmin(preferred); err != nil || got != preferred {
			t.Errorf("%q: %q, %v", preferred, got, err)
		}
	}
}
