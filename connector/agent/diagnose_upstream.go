package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// upstreams checks each model server.
func (d *diagnosis) upstreams(ctx context.Context) {
	upstreams, err := d.config.open(slog.New(slog.DiscardHandler))
	if err != nil {
		d.check(ctx, "upstreams", func(context.Context) Finding {
			return Finding{Result: ResultFailed, Detail: err.Error(), Fix: "let api_key_file name a file that this user can read, with the key alone in it"}
		})
		return
	}
	for _, name := range slices.Sorted(maps.Keys(upstreams)) {
		u := upstreams[name]
		var models []string
		listed := d.check(ctx, "models of "+name, func(ctx context.Context) (f Finding) {
			models, f = u.diagnoseModels(ctx)
			return f
		})
		if !listed || len(models) == 0 {
			d.check(ctx, "stream of "+name, func(context.Context) Finding {
				return Finding{Result: ResultSkipped, Detail: "there is no model to ask"}
			})
			continue
		}
		d.check(ctx, "stream of "+name, func(ctx context.Context) Finding { return u.diagnoseStream(ctx, models[0], d.probeTimeout) })
		u.idle.drop()
	}
}

func (u *upstream) diagnoseModels(ctx context.Context) ([]string, Finding) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	list, err := u.list(ctx)
	models := list.IDs
	if ctx.Err() != nil {
		err = fmt.Errorf("%w within %v", os.ErrDeadlineExceeded, checkTimeout)
	}
	if err != nil {
		return nil, Finding{Result: ResultFailed, Detail: fmt.Sprintf("the model server at %s: %v", u.address, err), Fix: u.fix(err)}
	}
	if len(models) == 0 {
		return nil, Finding{Result: ResultWarning, Detail: "the model server at " + u.address + " has no models", Fix: "load a model into it"}
	}
	return models, Finding{Result: ResultOK, Detail: fmt.Sprintf("%s has %d, the first is %s", u.address, len(models), models[0])}
}

// fix says what to do about an upstream's failure.
func (u *upstream) fix(err error) string {
	var status *statusError
	switch {
	case errors.As(err, &status) && (status.code == http.StatusUnauthorized || status.code == http.StatusForbidden):
		if u.key != nil {
			return "the key in " + u.key.path + " is not the one that the server wants; replace it"
		}
		return "it asks for a key: write it into a file, and name that in api_key_file"
	case errors.As(err, &status) && status.code == http.StatusNotFound:
		return "check the address: OpenAI's API must be under /v1 there"
	case errors.As(err, &status) && status.code >= 500:
		return "see the log of the model server"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "see what the model server at " + u.address + " is busy with, and check the address"
	case errors.Is(err, errNotConnected):
		return "start the model server, or correct the address in the configuration"
	default:
		return "check that a model server with OpenAI's API is at this address"
	}
}

// statusError is an answer with a status other than 200.
type statusError struct{ code int }

func (e *statusError) Error() string { return fmt.Sprintf("it answers with status %d", e.code) }

// diagnoseStream asks a model for a few words, as a stream.
func (u *upstream) diagnoseStream(ctx context.Context, model string, timeout time.Duration) Finding {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	first, events, err := u.probe(limited, model)
	var status *statusError
	switch {
	case errors.Is(limited.Err(), context.DeadlineExceeded) && err != nil:
		return Finding{
			Result: ResultFailed, Detail: fmt.Sprintf("%s has not answered within %v", model, timeout),
			Fix: "it may be loading, or be too large for this machine; try again, or give it longer with --timeout",
		}
	case errors.As(err, &status) && status.code < 500 && status.code != http.StatusUnauthorized && status.code != http.StatusForbidden:
		return Finding{
			Result: ResultWarning, Detail: fmt.Sprintf("%s cannot be asked for a chat: %v", model, err),
			Fix: "nothing, if it is a model for something else, like embeddings; otherwise see the log of the model server",
		}
	case err != nil:
		return Finding{Result: ResultFailed, Detail: fmt.Sprintf("asking %s for a stream: %v", model, err), Fix: u.fix(err)}
	default:
		return Finding{Result: ResultOK, Detail: fmt.Sprintf("%s sent the first of %d events after %v", model, events, first.Sub(start).Round(time.Millisecond))}
	}
}

// maxProbeEvents is where a stream that does not end is left.
const maxProbeEvents = 200

// probe asks for a short stream, and returns when its first event came, and how
// many there were.
func (u *upstream) probe(ctx context.Context, model string) (first time.Time, events int, err error) {
	request, err := json.Marshal(map[string]any{
		"model": model, "stream": true, "max_tokens": 16,
		"messages": []map[string]string{{"role": "user", "content": "Say OK."}},
	})
	if err != nil {
		return first, 0, err
	}
	answer, err := u.ask(ctx, http.MethodPost, "/v1/chat/completions", string(request))
	if err != nil {
		return first, 0, err
	}
	defer answer.finish()
	if !link.HasMediaType(answer.header, "text/event-stream") {
		return first, 0, fmt.Errorf("it answers with %q, not with a stream of events", cut(answer.header.Get("Content-Type")))
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

// ask sends a request of the connector's own. Without an error the answer has
// status 200, and must be finished.
func (u *upstream) ask(ctx context.Context, method, path, text string) (*answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, path, nil)
	if err != nil {
		return nil, err
	}
	if text != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	u.readdress(r)
	body, err := readPayload(new(buffers), nil, strings.NewReader(text), int64(len(text)))
	if err != nil {
		return nil, err
	}
	defer body.release()
	answer, err := u.roundTrip(r, body)
	if err != nil {
		return nil, err
	}
	if answer.status != http.StatusOK {
		answer.finish()
		return nil, &statusError{answer.status}
	}
	return answer, nil
}

// maxModelList bounds what is read of a model server's list, in bytes.
const maxModelList = 2 << 20

// errNoList says that a server answers, but does not list its models.
var errNoList = errors.New("it answers, but not with a list of models")

// list asks the model server for its models.
func (u *upstream) list(ctx context.Context) (link.ModelList, error) {
	answer, err := u.ask(ctx, http.MethodGet, "/v1/models", "")
	if err != nil {
		return link.ModelList{}, err
	}
	defer answer.finish()
	data, err := io.ReadAll(io.LimitReader(answer, maxModelList))
	list, ok := link.ParseModels(data)
	if err != nil || !ok {
		return link.ModelList{}, errNoList
	}
	return list, nil
}
