package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	maxAnswer  = 512 << 10
	maxHeaders = 64 << 10
	patience   = 10 * time.Second // for a whole answer
)

var (
	errTooLong  = fmt.Errorf("the issuer's answer has more than %d bytes", maxAnswer)
	errRedirect = errors.New("the issuer redirects to another address")
)

// client sends requests to an issuer. Answers are bounded. It follows no redirect, which could pass the secret on.
type client struct{ http.Client }

func newClient() *client {
	return &client{http.Client{
		Transport: bounded{&http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: patience,
			MaxResponseHeaderBytes: maxHeaders, MaxIdleConns: 4, IdleConnTimeout: time.Minute,
		}},
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
	}}
}

// get decodes the JSON at an address.
func (c *client) get(ctx context.Context, address, token string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", address, answer.Status)
	}
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s answers no valid JSON: %w", address, err)
	}
	return nil
}

// dateKey is the key of a *time.Time in the context of a request, which gets the time of the answer by the issuer.
type dateKey struct{}

type bounded struct{ *http.Transport }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if date, ok := r.Context().Value(dateKey{}).(*time.Time); ok {
		*date, _ = http.ParseTime(answer.Header.Get("Date"))
	}
	answer.Body = &boundedBody{answer.Body, maxAnswer}
	return answer, nil
}

type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return 0, errTooLong
	}
	return n, err
}
