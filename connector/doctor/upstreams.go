package doctor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/upstream"
)

// upstreams checks each model server.
func (d *diagnosis) upstreams(ctx context.Context) {
	upstreams, err := upstream.Open(&d.config, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		d.check(ctx, "upstreams", func(context.Context) Finding {
			return Finding{Result: ResultFailed, Detail: err.Error(), Fix: "let api_key_file name a file that this user can read, with the key alone in it"}
		})
		return
	}
	defer upstreams.CloseIdle()
	for _, name := range upstreams.Names() {
		u := upstreams[name]
		var ids []string
		listed := d.check(ctx, "models of "+name, func(ctx context.Context) (f Finding) {
			ids, f = models(ctx, u)
			return f
		})
		if !listed || len(ids) == 0 {
			d.check(ctx, "stream of "+name, func(context.Context) Finding {
				return Finding{Result: ResultSkipped, Detail: "there is no model to ask"}
			})
			continue
		}
		d.check(ctx, "stream of "+name, func(ctx context.Context) Finding { return stream(ctx, u, ids[0], d.probeTimeout) })
	}
}

// models asks a model server for its models.
func models(ctx context.Context, u *upstream.Server) ([]string, Finding) {
	list, err := u.Models(ctx)
	ids := list.IDs
	switch {
	case err != nil:
		return nil, Finding{Result: ResultFailed, Detail: fmt.Sprintf("the model server at %s: %v", u.Address, err), Fix: fix(u, err)}
	case len(ids) == 0:
		return nil, Finding{Result: ResultWarning, Detail: "the model server at " + u.Address + " has no models", Fix: "load a model into it"}
	}
	return ids, Finding{Result: ResultOK, Detail: fmt.Sprintf("%s has %d, the first is %s", u.Address, len(ids), ids[0])}
}

// fix says what to do about an upstream's failure.
func fix(u *upstream.Server, err error) string {
	var status *upstream.StatusError
	switch {
	case errors.As(err, &status) && (status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden):
		if u.KeyFile() != "" {
			return "the key in " + u.KeyFile() + " is not the one that the server wants; replace it"
		}
		return "it asks for a key: write it into a file, and name that in api_key_file"
	case errors.As(err, &status) && status.Code == http.StatusNotFound:
		return "check the address: OpenAI's API must be under /v1 there"
	case errors.As(err, &status) && status.Code >= 500:
		return "see the log of the model server"
	case errors.Is(err, upstream.ErrNoAnswer):
		return "see what the model server at " + u.Address + " is busy with, and check the address"
	case errors.Is(err, upstream.ErrNotConnected):
		return "start the model server, or correct the address in the configuration"
	default:
		return "check that a model server with OpenAI's API is at this address"
	}
}

// stream asks a model for a few words, as a stream.
func stream(ctx context.Context, u *upstream.Server, model string, timeout time.Duration) Finding {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	first, events, err := probe(limited, u, model)
	var status *upstream.StatusError
	switch {
	case errors.Is(limited.Err(), context.DeadlineExceeded) && err != nil:
		return Finding{
			Result: ResultFailed, Detail: fmt.Sprintf("%s has not answered within %v", model, timeout),
			Fix: "it may be loading, or be too large for this machine; try again, or give it longer with --timeout",
		}
	case errors.As(err, &status) && status.Code < 500 && status.Code != http.StatusUnauthorized && status.Code != http.StatusForbidden:
		return Finding{
			Result: ResultWarning, Detail: fmt.Sprintf("%s cannot be asked for a chat: %v", model, err),
			Fix: "nothing, if it is a model for something else, like embeddings; otherwise see the log of the model server",
		}
	case err != nil:
		return Finding{Result: ResultFailed, Detail: fmt.Sprintf("asking %s for a stream: %v", model, err), Fix: fix(u, err)}
	default:
		return Finding{Result: ResultOK, Detail: fmt.Sprintf("%s sent the first of %d events after %v", model, events, first.Sub(start).Round(time.Millisecond))}
	}
}

// maxProbeEvents is where a stream that does not end is left.
const maxProbeEvents = 200

// probe asks for a short stream, and returns when its first event came, and how
// many there were.
func probe(ctx context.Context, u *upstream.Server, model string) (first time.Time, events int, err error) {
	request, err := json.Marshal(map[string]any{
		"model": model, "stream": true, "max_tokens": 16,
		"messages": []map[string]string{{"role": "user", "content": "Say OK."}},
	})
	if err != nil {
		return first, 0, err
	}
	header, answer, err := u.Ask(ctx, http.MethodPost, "/v1/chat/completions", string(request))
	if err != nil {
		return first, 0, err
	}
	defer answer.Close()
	if !link.HasMediaType(header, "text/event-stream") {
		return first, 0, fmt.Errorf("it answers with %q, not with a stream of events", text.Short(header.Get("Content-Type")))
	}
	lines := bufio.NewScanner(answer)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		if !ok {
			continue
		}
		if strings.TrimSpace(data) == "[DONE]" || events == maxProbeEvents {
			break
		}
		if events++; events == 1 {
			first = time.Now()
		}
	}
	if err := lines.Err(); err != nil {
		return first, events, fmt.Errorf("the stream broke off: %w", err)
	}
	if events == 0 {
		return first, 0, errors.New("the stream ended without an event")
	}
	return first, events, nil
}
