package oidc

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/rig/wait"
)

// Answers that are too long or too slow end in an error, and cost little.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	const endless = 1 << 30
	long := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, io.LimitReader(zeros{}, endless))
	}
	headers := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 1<<20))
		_, _ = io.WriteString(w, "{}")
	}
	for name, answer := range map[string]http.HandlerFunc{"long": long, "headers": headers} {
		for _, path := range []string{"/.well-known/openid-configuration", "/keys", "/token", "/userinfo"} {
			t.Run(name+path, func(t *testing.T) {
				t.Parallel()
				f := newFake(t)
				f.Discovery(map[string]any{"userinfo_endpoint": f.URL + "/userinfo"})
				f.Claims = map[string]any{"groups": nil}
				f.Handle(path, answer)
				i := f.issuer(nil)
				flow := Flow{Began: time.Now(), Purpose: SignIn}
				_, err := i.Begin(&flow)
				if f.Nonce = flow.Nonce; err == nil {
					_, err = i.Finish(t.Context(), flow, url.Values{"state": {flow.State}, "code": {"c"}}, time.Now(), once)
				}
				got := expectFailure(t, path, err, ErrDown, false)
				if strings.Contains(got.text, "000000") || strings.Contains(got.text, "xxxx") { // ports have five digits
					t.Errorf("the page has the answer: %s", got.text)
				}
			})
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

// A slow issuer is given up after ten seconds.
func TestSlowIssuer(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	i := f.issuer(nil)
	flow, _ := f.begin(i, SignIn)
	f.Handle("/token", func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(100 * time.Millisecond)
		}
	})
	began := time.Now()
	_, err := i.Finish(t.Context(), flow, answer(flow), time.Now(), once)
	expectFailure(t, "one byte at a time", err, ErrDown, false)
	if took := time.Since(began); took > patience+time.Minute {
		t.Errorf("it took %v", took)
	}
}

// Redirects are not followed, so the secret goes nowhere else.
func TestRedirects(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the other host was asked for %s", r.URL)
	}))
	t.Cleanup(other.Close)
	for _, path := range []string{"/.well-known/openid-configuration", "/keys", "/token"} {
		f := newFake(t)
		f.Handle(path, http.RedirectHandler(other.URL, http.StatusTemporaryRedirect).ServeHTTP)
		i := f.issuer(nil)
		flow := Flow{Began: time.Now()}
		_, err := i.Begin(&flow)
		if f.Nonce = flow.Nonce; err == nil {
			_, err = i.Finish(t.Context(), flow, answer(flow), time.Now(), once)
		}
		expectFailure(t, path, err, ErrDown, false)
		if n := f.Asked(path); n != 1 {
			t.Errorf("%s was asked %d times", path, n)
		}
	}
}

// The discovery document must be of the issuer, and its addresses HTTPS.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]map[string]any{
		"another issuer": {"issuer": "https://other.example.com"},
		"file":           {"token_endpoint": "file:///etc/passwd"},
		"no TLS":         {"jwks_uri": "http://id.example.com/keys"},
		"user":           {"authorization_endpoint": "https://a:b@id.example.com"},
		"no end":         {"token_endpoint": ""},
		"userinfo":       {"userinfo_endpoint": "http://192.0.2.1/"},
		"end":            {"end_session_endpoint": "javascript:alert(1)"},
	} {
		f := newFake(t)
		f.Discovery(more)
		_, err := f.issuer(nil).Begin(new(Flow))
		failed := expectFailure(t, name, err, ErrInvalid, false)
		for _, text := range []string{failed.Cause, failed.text} {
			if _, other := more["issuer"]; other &&
				(!strings.Contains(text, "https://other.example.com") || !strings.Contains(text, f.URL)) {
				t.Errorf("the page or the log says %s", text)
			}
		}
	}
	if mayAsk("http://127.0.0.1/", false) || mayAsk("https://localhost/", false) || !mayAsk("http://[::1]:80/", true) ||
		!mayAsk("https://id.example.com", false) || mayAsk("http://127.0.0.1.example.com", true) {
		t.Error("addresses of this machine are only for an issuer on it")
	}
}

// An issuer that is down is tried in the background, and at a sign-in.
func TestIssuerDown(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.Handle("/.well-known/openid-configuration", http.NotFound)
	i := f.issuer(nil)
	if _, err := i.Begin(new(Flow)); i.Known() {
		t.Error("it is known")
	} else {
		expectFailure(t, "down", err, ErrDown, false)
	}
	i.Start(slog.New(slog.DiscardHandler))
	i.Start(slog.New(slog.DiscardHandler))
	f.Handle("/.well-known/openid-configuration", nil)
	wait.Until(t, "it is found in the background", i.Known)
	if _, err := f.signIn(i); err != nil {
		t.Error(err)
	}
}

// A provider outlives configurations, and reports to the log of the newest one.
func TestLogOfNewestConfiguration(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.Handle("/.well-known/openid-configuration", http.NotFound)
	i := f.issuer(nil)
	for range 2 {
		log := make(logged, 10)
		i.Start(slog.New(slog.NewTextHandler(log, nil)))
		if line := <-log; !strings.Contains(line, "failed to reach an issuer") {
			t.Errorf("the log has %s", line)
		}
	}
}

// logged receives the lines of a log.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// Many people at once make one request to an issuer that hangs.
func TestDiscoveryAtOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	release := make(chan struct{})
	f.Handle("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		<-release
		w.WriteHeader(http.StatusBadGateway)
	})
	i := f.issuer(nil)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := i.Begin(new(Flow)); err == nil {
				t.Error("no error")
			}
		})
	}
	time.Sleep(200 * time.Millisecond) // they wait
	close(release)
	all.Wait()
	if n := f.Asked("/.well-known/openid-configuration"); n > 2 {
		t.Errorf("%d requests", n)
	}
}

// Only some exchanges run at a time.
func TestBusy(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	i := f.issuer(nil)
	for range maxExchanges {
		i.exchanges <- struct{}{}
	}
	flow, _ := f.begin(i, SignIn)
	used := false
	finish := func() error {
		_, err := i.Finish(t.Context(), flow, answer(flow), time.Now(), func() error { used = true; return nil })
		return err
	}
	got := expectFailure(t, "busy", finish(), ErrDown, false)
	if used || f.Asked("/token") != 0 || !strings.Contains(got.text, "Reload") {
		t.Errorf("the state is used: %v, or the code: %s", used, got.text)
	}
	<-i.exchanges
	if err := finish(); err != nil || !used {
		t.Errorf("the same answer later: %v", err)
	}
}

// New keys are fetched once; tokens of the old ones are then refused.
func TestNewKeys(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	i := f.issuer(nil)
	_, err := f.signIn(i)
	must(t, err)
	old := f.Sign
	f.UseKey(1)
	for range 3 {
		if _, err := f.signIn(i); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.Asked("/keys"); n != 2 {
		t.Errorf("the keys were fetched %d times", n)
	}
	f.Sign = old
	_, err = f.signIn(i)
	expectFailure(t, "a token of the old key", err, ErrInvalid, false)
}
