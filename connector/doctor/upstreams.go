package doctor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/upstream"
	"github.com/postern-dev/postern/connector/window"
)

// Models checks that each upstream lists its models. It returns an error only if the configuration
// is invalid.
func Models(ctx context.Context, c config.Config, report func(Finding)) error {
	set, err := upstream.Open(&c, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	d := &diagnosis{report: report}
	for _, name := range set.Names() {
		d.models(ctx, set[name])
	}
	return nil
}

func (d *diagnosis) upstreams(ctx context.Context) {
	set, err := upstream.Open(&d.config, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		d.check(ctx, "upstreams", func(context.Context) Finding {
			return bad("set api_key_file to a file that this user can read and that contains only the key", "%v", err)
		})
		return
	}
	for _, name := range set.Names() {
		list := d.models(ctx, set[name])
		d.check(ctx, "stream of "+name, func(ctx context.Context) Finding {
			if len(list.IDs) == 0 {
				return skipped("no model to test")
			}
			return stream(ctx, set[name], list.IDs[0], d.probeTimeout)
		})
		if model := d.measured; model != "" {
			d.check(ctx, "context window of "+name, func(ctx context.Context) Finding {
				if list.IDs != nil && !list.Open && !slices.Contains(append(list.IDs, list.Aliases...), model) {
					return skipped("it does not list the model " + model)
				}
				return measure(ctx, set[name], model)
			})
		}
	}
}

// models requests the list of a model server's models, and returns it.
func (d *diagnosis) models(ctx context.Context, u *upstream.Server) (list link.ModelList) {
	d.check(ctx, "models of "+u.Name, func(ctx context.Context) Finding {
		var err error
		switch list, err = u.Models(ctx); {
		case err != nil:
			return bad(fixOf(u, err), "the model server at %s: %v", u.Address, err)
		case len(list.IDs) == 0:
			return warned("load a model into it", "the model server at %s has no models", u.Address)
		}
		if len(list.IDs) == 1 {
			return ok("%s has 1 model, %s", u.Address, list.IDs[0])
		}
		return ok("%s has %d models, the first is %s", u.Address, len(list.IDs), list.IDs[0])
	})
	return list
}

// measureTimeout bounds a measurement: a server may process half a window of tokens first.
const measureTimeout = 5 * time.Minute

// measure measures the context window of a model.
func measure(ctx context.Context, u *upstream.Server, model string) Finding {
	const byHand = "set the option context_window of the model's deployment"
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	result, err := u.Measure(ctx, model)
	switch {
	case ctx.Err() != nil:
		return bad("try again when the model server is idle, or "+byHand,
			"%s did not answer a long prompt within %v", model, measureTimeout)
	case err != nil:
		return bad(fixOf(u, err), "measuring the context window of %s: %v", model, err)
	case result.Window == 0:
		return warned(byHand, "%s: %v", model, result)
	case result.Cuts:
		return warned(window.Remedy, "%s: %v", model, result)
	default:
		return ok("%s: %v", model, result)
	}
}

// fixOf returns the fix for an error of a model server.
func fixOf(u *upstream.Server, err error) string {
	var status *upstream.StatusError
	switch {
	case errors.As(err, &status) && (status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden):
		if u.KeyFile() != "" {
			return "the server rejects the key in " + u.KeyFile() + "; replace it"
		}
		return "the server requires a key: write it into a file, and name that in api_key_file"
	case errors.As(err, &status) && status.Code == http.StatusNotFound:
		return "check the address: OpenAI's API must be under /v1"
	case errors.As(err, &status) && status.Code >= 500:
		return "see the log of the model server"
	case errors.Is(err, upstream.ErrNoAnswer):
		return "check the load of the model server at " + u.Address + ", and the address"
	case errors.Is(err, upstream.ErrNotConnected):
		return "start the model server, or correct the address in the configuration"
	default:
		return "check that this is the address of a model server with OpenAI's API"
	}
}

// stream requests a short streamed answer from a model.
func stream(ctx context.Context, u *upstream.Server, model string, timeout time.Duration) Finding {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	first, events, err := probe(limited, u, model)
	var status *upstream.StatusError
	switch {
	case errors.Is(limited.Err(), context.DeadlineExceeded) && err != nil:
		return bad("it may be loading, or be too large for this machine; try again, or raise --timeout",
			"%s did not answer within %v", model, timeout)
	case errors.As(err, &status) && status.Code < 500 && status.Code != http.StatusUnauthorized &&
		status.Code != http.StatusForbidden:
		return warned("ignore this if the model is not for chats, like one for embeddings; otherwise see the log of the "+
			"model server",
			"%s rejects a chat request: %v", model, err)
	case err != nil:
		return bad(fixOf(u, err), "streaming from %s: %v", model, err)
	default:
		return ok("%s sent the first event after %v, %d in all", model, first.Sub(start).Round(time.Millisecond), events)
	}
}

// maxProbeEvents is the number of events after which a stream is abandoned.
const maxProbeEvents = 200

// probe requests a short stream. It returns the time of the first event, and the number of
// events.
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
		return first, 0, fmt.Errorf("the answer is %q, not an event stream", text.Short(header.Get("Content-Type")))
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
		return first, events, fmt.Errorf("the stream was interrupted: %w", err)
	}
	if events == 0 {
		return first, 0, errors.New("the stream ended without an event")
	}
	return first, events, nil
}
