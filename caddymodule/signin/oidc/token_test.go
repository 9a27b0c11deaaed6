package oidc

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/postern-dev/postern/tests/issuertest"
)

// jws signs claims with any key.
func jws(t *testing.T, algorithm jose.SignatureAlgorithm, key any, claims string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, nil)
	must(t, err)
	signed, err := signer.Sign([]byte(claims))
	must(t, err)
	text, err := signed.CompactSerialize()
	must(t, err)
	return text
}

// Tokens with another algorithm, or encrypted ones, are refused.
func TestAlgorithms(t *testing.T) {
	t.Parallel()
	key := issuertest.Keys()[0]
	secret := strings.Repeat("s3cret", 6)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	must(t, err)
	for name, sign := range map[string]func(claims string) string{
		"none": func(claims string) string {
			part := base64.RawURLEncoding.EncodeToString
			return part([]byte(`{"alg":"none"}`)) + "." + part([]byte(claims)) + "."
		},
		"HS256 with the secret": func(claims string) string { return jws(t, jose.HS256, []byte(secret), claims) },
		"HS256 with the key":    func(claims string) string { return jws(t, jose.HS256, public, claims) },
		"JWE": func(claims string) string {
			encrypter, err := jose.NewEncrypter(jose.A128GCM, jose.Recipient{Algorithm: jose.RSA_OAEP, Key: key.Public()}, nil)
			must(t, err)
			encrypted, err := encrypter.Encrypt([]byte(claims))
			must(t, err)
			text, err := encrypted.CompactSerialize()
			must(t, err)
			return text
		},
		"no token":      func(string) string { return "" },
		"another's key": func(claims string) string { return jws(t, jose.RS256, issuertest.Keys()[1], claims) },
	} {
		f := newFake(t)
		f.Discovery(map[string]any{"id_token_signing_alg_values_supported": []string{"none", "HS256", "RS256"}})
		f.Sign = sign
		_, err := f.signIn(f.issuer(func(c *Config) { c.ClientSecret = secret }))
		expectFailure(t, name, err, ErrInvalid, false)
	}
}

// The checks that the library leaves to its callers, and some of its own.
func TestTokens(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	i := f.issuer(nil)
	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	for _, c := range []struct {
		name   string
		claims map[string]any
		kind   error // nil: accepted
		counts bool
	}{
		{"wrong aud", map[string]any{"aud": "other"}, ErrInvalid, false},
		{"foreign azp", map[string]any{"aud": []string{clientID, "other"}, "azp": "other"}, ErrInvalid, false},
		{"several aud", map[string]any{"aud": []string{clientID, "other"}, "azp": clientID}, nil, false},
		{"several aud without azp", map[string]any{"aud": []string{clientID, "other"}}, ErrInvalid, false},
		{"wrong iss", map[string]any{"iss": "https://other.example.com"}, ErrInvalid, false},
		{"no sub", map[string]any{"sub": nil}, ErrInvalid, false},
		{"long sub", map[string]any{"sub": strings.Repeat("x", 10_000)}, ErrInvalid, false},
		{"no nonce", map[string]any{"nonce": nil}, ErrAttempt, true},
		{"other nonce", map[string]any{"nonce": "x"}, ErrAttempt, true},
		{"expired", map[string]any{"exp": in(-3 * time.Minute)}, ErrInvalid, false},
		{"expired within the skew", map[string]any{"exp": in(-time.Minute)}, nil, false},
		{"iat in an hour", map[string]any{"iat": in(time.Hour)}, ErrClock, false},
		{"iat within the skew", map[string]any{"iat": in(time.Minute)}, nil, false},
		{"nbf in six minutes", map[string]any{"nbf": in(6 * time.Minute)}, ErrClock, false},
		{"nbf within the skew", map[string]any{"nbf": in(2 * time.Minute)}, nil, false},
		{"distributed claims", map[string]any{
			"_claim_names":   map[string]string{"x": "s"},
			"_claim_sources": map[string]any{"s": map[string]string{"endpoint": f.URL + "/x"}},
		}, nil, false},
	} {
		f.Claims = c.claims
		_, err := f.signIn(i)
		if c.kind == nil {
			if err != nil {
				t.Errorf("%s: %v (%s)", c.name, err, err.(*Failure).Cause)
			}
			continue
		}
		got := expectFailure(t, c.name, err, c.kind, c.counts)
		if c.kind == ErrClock && strings.Count(got.text, ":") < 4 {
			t.Errorf("%s: not both times: %s", c.name, got.text)
		}
	}
	if f.Asked("/x") > 0 {
		t.Error("a distributed claim was fetched")
	}
}

// If the issuer's clock differs, an expired token is explained with both times.
func TestClock(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.Header = http.Header{"Date": {"Tue, 01 Jan 2030 10:00:00 GMT"}}
	f.Claims = map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}
	_, err := f.signIn(f.issuer(nil))
	got := expectFailure(t, "expired", err, ErrClock, false)
	if !strings.Contains(got.text, "2030-01-01 10:00:00 UTC") {
		t.Errorf("it says %s", got.text)
	}
	for _, d := range []time.Duration{-2 * time.Minute, 2 * time.Minute} {
		f.Header, f.Claims = nil, nil
		i := f.issuer(nil)
		flow, _ := f.begin(i, SignIn)
		if _, err := i.Finish(t.Context(), flow, answer(flow), time.Now().Add(d), once); err != nil {
			t.Errorf("a clock that is %v off: %v", d, err)
		}
	}
}

// A key of a megabit costs nothing, and neither small keys nor secrets are used.
func TestKeys(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	encoded := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }
	huge := new(big.Int).Lsh(big.NewInt(1), 1<<20)
	rsaKey := func(n *big.Int) map[string]string {
		return map[string]string{"kty": "RSA", "alg": "RS256", "e": "AQAB", "n": encoded(n.SetBit(n, 0, 1))}
	}
	f.Handle("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{
			rsaKey(huge), rsaKey(new(big.Int).Lsh(big.NewInt(1), 1023)),
			map[string]string{"kty": "oct", "k": "czNjcmV0"},
			map[string]string{"kty": "odd"},
			7,
		}})
	})
	began := time.Now()
	i := f.issuer(nil)
	_, err := f.signIn(i)
	expectFailure(t, "keys that are too large or too small", err, ErrInvalid, false)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if n := len(*i.known.Load().keys.known.Load()); n != 0 {
		t.Errorf("%d keys are used", n)
	}
	if !isUsable(jose.JSONWebKey{Key: &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2047), E: 65537}}) {
		t.Error("a key of 2048 bits is not used")
	}
}

// Nothing is sent to the issuer for an answer that is not of the flow.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.Discovery(map[string]any{"authorization_response_iss_parameter_supported": true})
	i := f.issuer(nil)
	other := f.issuer(func(c *Config) { c.Name = "other" })
	other.URL = "https://other.example.com"
	flow, _ := f.begin(i, SignIn)
	with := func(name, value string) url.Values {
		q := answer(flow)
		q.Set("iss", f.URL)
		q.Set(name, value)
		return q
	}
	for _, c := range []struct {
		name  string
		i     *Issuer
		query url.Values
		after time.Duration
		kind  error
	}{
		{"no state", i, with("state", ""), 0, ErrAttempt},
		{"another state", i, with("state", flow.State+"x"), 0, ErrAttempt},
		{"the flow of another issuer", other, with("iss", ""), 0, ErrAttempt},
		{"late", i, with("code", "c"), FlowLife + time.Second, ErrAttempt},
		{"wrong iss", i, with("iss", "https://evil.example.com"), 0, ErrAttempt},
		{"no iss", i, with("iss", ""), 0, ErrAttempt},
		{"no code", i, with("code", ""), 0, ErrAttempt},
		{"long code", i, with("code", strings.Repeat("c", maxCode+1)), 0, ErrAttempt},
		{"refused", i, with("error", "access_denied"), 0, ErrRefused},
		{"not registered", i, with("error", "invalid_request"), 0, ErrRefused},
	} {
		_, err := c.i.Finish(t.Context(), flow, c.query, flow.Began.Add(c.after), once)
		got := expectFailure(t, c.name, err, c.kind, true)
		if c.name == "not registered" && !strings.Contains(got.text, i.Redirect) {
			t.Errorf("%s: %s", c.name, got.text)
		}
	}
	used := errors.New("used before")
	if _, err := i.Finish(t.Context(), flow, with("code", "c"), flow.Began, func() error { return used }); err != used {
		t.Errorf("used: %v", err)
	}
	if n := f.Asked("/token"); n != 0 {
		t.Errorf("the token endpoint was asked %d times", n)
	}
}

// A wrong code is an attempt, however the issuer says so. A wrong secret and an outage are not.
func TestRefusedCodes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		body   string
		kind   error
		counts bool
	}{
		{400, `{"error":"invalid_grant"}`, ErrAttempt, true},
		{400, `{"error":"access_denied","error_description":"x"}`, ErrAttempt, true},
		{404, "what?", ErrAttempt, true},
		{403, `{"error":"server_error"}`, ErrAttempt, true},
		{500, "oops", ErrDown, false},
		{500, `{"error":"invalid_grant"}`, ErrDown, false},
		{502, "oops", ErrDown, false},
		{200, `{"error":"invalid_grant"}`, ErrAttempt, true},
		{401, `{"error":"invalid_client"}`, ErrDown, false},
		{503, "later", ErrDown, false},
		{400, `{"error":"invalid_request","error_description":"redirect_uri does not match"}`, ErrRefused, true},
	} {
		f := newFake(t)
		f.Handle("/token", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		})
		i := f.issuer(nil)
		_, err := f.signIn(i)
		got := expectFailure(t, c.body, err, c.kind, c.counts)
		if c.status >= 500 && !strings.Contains(got.text, "is down") || strings.Contains(got.text, "oops") ||
			c.kind == ErrRefused && !strings.Contains(got.text, i.Redirect) {
			t.Errorf("%s: %s", c.body, got.text)
		}
		if f.Asked("/token") != 1 {
			t.Errorf("%s: asked again", c.body)
		}
	}
}

// Who links an identity is asked by the issuer, too, which may have signed in another person on a shared machine.
func TestLinkAsks(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	i := f.issuer(nil)
	for _, c := range []struct {
		purpose        Purpose
		url            string
		prompt, maxAge string
	}{
		{SignIn, f.URL, "", ""},
		{Link, f.URL, "login", "0"},
		{SignIn, "https://accounts.google.com", "", ""},
		{Link, "https://accounts.google.com", "select_account", ""}, // which has no prompt=login
	} {
		i.URL = c.url
		if _, sent := f.begin(i, c.purpose); sent.Get("prompt") != c.prompt || sent.Get("max_age") != c.maxAge {
			t.Errorf("%s at %s: the issuer is asked %v", c.purpose, c.url, sent)
		}
	}
}

// A confirmation needs a sign-in at the issuer after its beginning.
func TestConfirm(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	i := f.issuer(nil)
	for name, at := range map[string]any{
		"none": nil, "old": time.Now().Add(-2 * time.Minute).Unix(), "text": "now", "later": time.Now().Add(time.Hour).Unix(),
	} {
		f.Claims = map[string]any{"auth_time": at}
		flow, sent := f.begin(i, Confirm)
		if sent.Get("prompt") != "login" || sent.Get("max_age") != "0" {
			t.Errorf("the issuer is asked %v", sent)
		}
		_, err := i.Finish(t.Context(), flow, answer(flow), time.Now(), once)
		expectFailure(t, name, err, ErrRefused, true)
	}
	f.Claims = map[string]any{"auth_time": time.Now().Unix()}
	flow, _ := f.begin(i, Confirm)
	if p, err := i.Finish(t.Context(), flow, answer(flow), time.Now(), once); err != nil || p.ConfirmedAt.IsZero() {
		t.Errorf("%+v, %v", p, err)
	}
}
