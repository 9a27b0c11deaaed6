package dial

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	gatewayPin = "n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg"
	otherPin   = "o4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg"
)

// answerDiscovery is a gateway that answers so, and knows nothing else.
func answerDiscovery(status int, body string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+discoveryPath, func(w http.ResponseWriter, _ *http.Request) {
		if status == http.StatusFound {
			w.Header().Set("Location", body)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
	return mux
}

const goodDiscovery = `{"server":"gw.example.com:7443","pin":"` + gatewayPin + `","url":"https://gw.example.com",
	"console":"https://gw.example.com/console/","version":"v1.2","later":true}`

func find(t *testing.T, gatewayURL, pin, server string) (Gateway, error) {
	t.Helper()
	d, err := NewDiscovery(gatewayURL, DiscoveryOptions{Pin: pin, Server: server})
	if err != nil {
		return Gateway{}, err
	}
	return d.Find(t.Context())
}

func TestDiscover(t *testing.T) {
	server := httptest.NewServer(answerDiscovery(http.StatusOK, goodDiscovery))
	defer server.Close()
	want := Gateway{
		Server: "gw.example.com:7443", URL: server.URL, Pin: gatewayPin,
		Console: "https://gw.example.com/console/",
	}
	// What is copied from a browser or another program's settings will do.
	for _, suffix := range []string{"", "/", "/console/connectors?q=a#b", "/v1"} {
		if got, err := find(t, " "+server.URL+suffix+"\n", "", ""); err != nil || got != want {
			t.Errorf("%q: %+v, %v", suffix, got, err)
		}
	}
	want.Server = "10.0.0.1:7000"
	if got, err := find(t, server.URL, gatewayPin, "10.0.0.1:7000"); err != nil || got != want {
		t.Errorf("with pin and server: %+v, %v", got, err)
	}
}

func TestDiscoverOverTLS(t *testing.T) {
	server := httptest.NewTLSServer(answerDiscovery(http.StatusOK, goodDiscovery))
	server.Config.ErrorLog = nil
	defer server.Close()
	_, err := find(t, server.URL, "", "")
	wantText(t, err, "is not trusted by this machine", "--ca", "--pin")

	// With the certificate authority it works, and the name counts.
	ca := filepath.Join(t.TempDir(), "root.crt")
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, append([]byte("# the gateway's\n"), authority...), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := NewDiscovery(server.URL, DiscoveryOptions{CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Find(t.Context()); err != nil {
		t.Error(err)
	}
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	d.url.Host = "localhost:" + port
	_, err = d.Find(t.Context())
	wantText(t, err, "is for another name", "localhost", "--pin")

	// The pin needs neither the authority nor the name.
	for _, host := range []string{"localhost", "127.0.0.1"} {
		if _, err := find(t, "https://"+host+":"+port, gatewayPin, ""); err != nil {
			t.Errorf("%s with the pin: %v", host, err)
		}
		_, err = find(t, "https://"+host+":"+port, otherPin, "")
		wantText(t, err, "not the expected one")
	}

	// Without a scheme, HTTPS is meant, and never anything less.
	plain := httptest.NewServer(answerDiscovery(http.StatusOK, goodDiscovery))
	defer plain.Close()
	_, err = find(t, strings.TrimPrefix(plain.URL, "http://"), "", "")
	wantText(t, err, "HTTP", "check")
}

func TestDiscoverRefuses(t *testing.T) {
	long := `{"server":"` + strings.Repeat("a", maxDiscovery) + `:1","pin":"` + gatewayPin + `"}`
	for _, test := range []struct {
		name   string
		status int
		body   string
		pin    string
		want   []string
	}{
		{"a web site", http.StatusOK, "<html>", "", []string{"is not a Postern gateway", "check the address"}},
		{"other JSON", http.StatusOK, `{"models":[]}`, "", []string{"is not a Postern gateway"}},
		{
			"nothing there", http.StatusNotFound, "", "",
			[]string{"is not a Postern gateway, or pairing is disabled on it", "404"},
		},
		{"too much", http.StatusOK, long, "", []string{"is not a Postern gateway"}},
		{
			"redirect", http.StatusFound, "https://elsewhere.example.com/", "",
			[]string{`"https://elsewhere.example.com/"`, "use that address"},
		},
		{
			"no address", http.StatusServiceUnavailable, `{"error":"set \"public\"\u001b[31m"}`, "",
			[]string{`answered: set "public"[31m`},
		},
		{"wrong pin", http.StatusOK, goodDiscovery, otherPin, []string{gatewayPin, "not the expected one", "another server"}},
		{"bad pin", http.StatusOK, `{"server":"a:1","pin":"x"}`, "", []string{"invalid pin"}},
		{
			"bad server", http.StatusOK, `{"server":"a","pin":"` + gatewayPin + `"}`, "",
			[]string{"invalid address", "--server HOST:PORT"},
		},
		{
			"hostile server", http.StatusOK, `{"server":"a\u202eb:1","pin":"` + gatewayPin + `"}`, "",
			[]string{"not printable"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := httptest.NewServer(answerDiscovery(test.status, test.body))
			defer server.Close()
			_, err := find(t, server.URL, test.pin, "")
			wantText(t, err, test.want...)
			if len(err.Error()) > 600 || strings.ContainsAny(err.Error(), "\x1b\n") {
				t.Errorf("not for a terminal: %q", err)
			}
		})
	}
	_, err := find(t, "http://127.0.0.1:1", "", "")
	wantText(t, err, "127.0.0.1:1", "check the address, and that the gateway is running")
	_, err = find(t, "https://nowhere.invalid", "", "")
	wantText(t, err, "nowhere.invalid", "check the address")
}

// TestDiscoveryURL: plain HTTP is for this machine, or with a pin.
func TestDiscoveryURL(t *testing.T) {
	for _, test := range []struct {
		url, pin, server string
		want             string // part of the error; "" fine
	}{
		{"https://gw.example.com", "", "", ""},
		{"gw.example.com", "", "", ""},
		{"gw.example.com:8443", "", "", ""},
		{"http://localhost:8080", "", "", ""},
		{"http://127.3.2.1", "", "", ""},
		{"http://[::1]:8080", "", "", ""},
		{"http://gw.example.com", gatewayPin, "", ""},
		{"http://gw.example.com", "", "", "is not authenticated"},
		{"http://localhost.example.com", "", "", "https://localhost.example.com"},
		{"http://192.168.1.2:8080", "", "", "--pin"},
		{"https://gw.example.com", "short", "", "--pin: "},
		{"https://gw.example.com", "", "gw", "--server: "},
		{"ftp://gw.example.com", "", "", `begins with "ftp://"`},
		{"https://me:pass@gw.example.com", "", "", "must not contain a user name"},
		{"", "", "", "is not a URL"},
		{"https://", "", "", "is not a URL"},
		{"https://a b", "", "", "is not a URL"},
	} {
		_, err := NewDiscovery(test.url, DiscoveryOptions{Pin: test.pin, Server: test.server})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.url, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "pass@") {
			t.Errorf("the error tells a password: %v", err)
		}
	}
}

// TestDiscoveryCA: a file that cannot be used is refused before a request is sent.
func TestDiscoveryCA(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("-----BEGIN PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ url, ca, want string }{
		{"https://gw.example.com", empty, "empty.pem contains no certificate"},
		{"https://gw.example.com", empty + ".none", "no such file"},
		{"https://gw.example.com", filepath.Dir(empty), "--ca: "},
		{"http://localhost:8080", empty, "without HTTPS"},
	} {
		_, err := NewDiscovery(test.url, DiscoveryOptions{CA: test.ca})
		wantText(t, err, "--ca: ", test.want)
	}
}

func TestDiscoverWaitsForTheStart(t *testing.T) {
	asked := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		if len(asked) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"error":"just starting"}`)
			return
		}
		fmt.Fprint(w, goodDiscovery)
	}))
	defer server.Close()
	if _, err := find(t, server.URL, "", ""); err != nil || len(asked) != 2 {
		t.Errorf("asked %d times, %v", len(asked), err)
	}
}

func TestDiscoverCanBeStopped(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	d, err := NewDiscovery("http://"+silent.Addr().String(), DiscoveryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := d.Find(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v", err)
	}
	d.client.Timeout = 50 * time.Millisecond
	_, err = d.Find(t.Context())
	wantText(t, err, "did not answer within")
}

func wantText(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error = %v, want %q in it", err, part)
			return
		}
	}
	if err == nil {
		t.Fatal("no error")
	}
}

// TestDiscoverySpeaksHTTP1: discovery uses HTTP/1.1 even if the server prefers HTTP/2, over
// which the WebSocket of a tunnel cannot be opened.
func TestDiscoverySpeaksHTTP1(t *testing.T) {
	t.Parallel()
	protocol := make(chan string, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		protocol <- r.Proto
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	client := HTTPClient()
	trusted := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: trusted}
	response, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if got := <-protocol; got != "HTTP/1.1" {
		t.Errorf("it speaks %s", got)
	}
}
