package manage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
)

const (
	maxErrorBody = 8 << 10 // of a model server, in bytes
	maxErrorText = 300     // of its text that users see, in bytes
)

// upstreamCall is a request of an operation to one upstream of a connector.
type upstreamCall struct {
	tunnel    Tunnel
	connector string // its name
	upstream  string
}

// get sends a request. A response other than 2xx is an error. The texts of errors are
// for users.
func (u upstreamCall) get(ctx context.Context, path string) (*http.Response, error) {
	target := url.URL{Scheme: "http", Host: u.upstream, Path: path}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{"Accept": {"application/json"}, "User-Agent": {"postern"}}
	answer, err := u.tunnel.RoundTrip(r)
	if err != nil {
		return nil, u.explain(ctx, err)
	}
	if answer.StatusCode/100 == 2 {
		return answer, nil
	}
	defer answer.Body.Close()
	fault, err := io.ReadAll(io.LimitReader(answer.Body, maxErrorBody))
	if err != nil {
		fault = nil // the status is enough
	}
	return nil, forUsers(dialect.FromUpstream(answer.StatusCode, answer.Header, fault))
}

// forUsers returns an error of a model server in the style of the other errors: cut,
// printable, and with a lower-case first letter.
func forUsers(e *dialect.Error) error {
	message := e.Message
	if e.Kind == dialect.KindInvalidRequest || e.Kind == dialect.KindContextLength {
		message = "the model server refused the request: " + message
	} else if rest, ok := strings.CutPrefix(message, "The "); ok {
		message = "the " + rest
	}
	cut := *e
	cut.Message = oneLine(message, maxErrorText)
	return &cut
}

// explain returns the error of a missing or incomplete response, for users.
func (u upstreamCall) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the model server did not answer within %.f seconds", modelsTimeout.Seconds())
	case ctx.Err() != nil:
		return fmt.Errorf("the request was canceled: %w", context.Cause(ctx))
	case errors.Is(err, link.ErrUpstreamDown):
		return fmt.Errorf("connector %q cannot reach its upstream %q; start the model server there, or correct the "+
			"upstream's address in the connector's configuration", u.connector, u.upstream)
	case errors.Is(err, link.ErrUpstreamReset), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the model server closed the connection early; its log may have the reason")
	case errors.Is(err, link.ErrUpstreamMalformed):
		return fmt.Errorf("the model server sent an answer that is not valid HTTP; the log of connector %q has the details",
			u.connector)
	case errors.Is(err, tunnel.ErrCompressed):
		return errors.New("the model server compressed its response although the request did not allow it; turn off " +
			"compression in the server, or in the proxy in front of it")
	case errors.Is(err, link.ErrRefused):
		return fmt.Errorf("connector %q refused the request; update it if it is older than this gateway", u.connector)
	case errors.Is(err, link.ErrNoCredit):
		return fmt.Errorf("connector %q is already running as many requests as it allows; try again later, or raise "+
			"max_requests in its configuration", u.connector)
	case errors.Is(err, link.ErrNotSent), errors.Is(err, link.ErrTunnelLost), errors.Is(err, link.ErrCancelled):
		return fmt.Errorf("the tunnel of connector %q was lost; try again when the connector is online", u.connector)
	}
	return fmt.Errorf("the request to the model server failed: %w", err)
}

// oneLine returns untrusted text as one printable line, cut to at most limit bytes
// and an ellipsis.
func oneLine(s string, limit int) string {
	return text.Within(strings.Join(strings.Fields(s), " "), limit)
}
