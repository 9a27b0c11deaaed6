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

func (d *diagnosis) upstreams(ctx context.Context) {
	upstreams, err := upstream.Open(&d.config, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		d.check(ctx, "upstreams", func(context.Context) Finding {
			return bad("let api_key_file name a file that this user can read, with the key alone in it", "%v", err)
		})
		return
	}
	defer upstreams.CloseIdle()
	for _, name := range upstreams.Names() {
		u := upstreams[name]
		model := ""
		d.check(ctx, "models of "+name, func(ctx context.Context) (f Finding) {
			model, f = models(ctx, u)
			return f
		})
		d.check(ctx, "stream of "+name, func(ctx context.Context) Finding {
			if model == "" {
				return skipped("no model to ask")
			}
			return stream(ctx, u, model, d.probeTimeout)
		})
	}
}

// models asks a model server for its models, and returns the first.
func models(ctx context.Context, u *upstream.Server) (first string, f Finding) {
	list, err := u.Models(ctx)
	switch {
	case err != nil:
		return "", bad(fix(u, err), "the model server at %s: %v", u.Address, err)
	case len(list.IDs) == 0:
		return "", warned("load a model into it", "the model server at %s has no models", u.Address)
	}
	return list.IDs[0], ok("%s has %d, the first is %s", u.Address, len(list.IDs), list.IDs[0])
}

func fix(u *upstream.Server, err error) string {
	var status *upstream.StatusError
	switch {
	case errors.As(err, &status) && (status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden):
		if u.KeyFile() != "" {
			return "the server does not accept the key in " + u.KeyFile() + "; replace it"
		}
		return "it needs a key: write it into a file, and name that in api_key_file"
	case errors.As(err, &status) && status.Code == http.StatusNotFound:
		return "check the address: OpenAI's API must be under /v1 there"
	case errors.As(err, &status) && status.Code >= 500:
		return "see the log of the model server"
	case errors.Is(err, upstream.ErrNoAnswer):
		return "check the load of the model server at " + u.Address + ", and the address"
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
		return bad("it may be loading, or be too large for this machine; try again, or give it longer with --timeout",
			"%s has not answered within %v", model, timeout)
	case errors.As(err, &status) && status.Code < 500 && status.Code != http.StatusUnauthorized && status.Code != http.StatusForbidden:
		return warned("nothing, if it is a model for something else, like embeddings; otherwise see the log of the model server",
			"%s cannot be asked for a chat: %v", model, err)
	case err != nil:
		return bad(fix(u, err), "asking %s for a stream: %v", model, err)
	default:
		return ok("%s sent the first of %d events after %v", model, events, first.Sub(start).Round(time.Millisecond))
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
