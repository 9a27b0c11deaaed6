package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/window"
)

const (
	// modelsTimeout bounds the request for a server's list of models.
	modelsTimeout = 5 * time.Second
	// maxModelList bounds that list, in bytes.
	maxModelList = 2 << 20
)

var (
	// ErrNoAnswer means that an upstream has not answered in time.
	ErrNoAnswer = errors.New("no answer")
	// ErrNoList means that a server answers, but does not list its models.
	ErrNoList = errors.New("the answer is not a list of models")
)

// StatusError is an answer with a status other than 200.
type StatusError struct{ Code int }

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("answered with status %d", e.Code) }

// Models returns the models that the server lists.
func (u *Server) Models(ctx context.Context) (_ link.ModelList, err error) {
	ctx, cancel := context.WithTimeout(ctx, modelsTimeout)
	defer cancel()
	defer func() {
		if err == nil || ctx.Err() == nil {
			return
		}
		late := fmt.Errorf("%w within %v", ErrNoAnswer, modelsTimeout)
		if errors.Is(err, ErrNotConnected) {
			late = fmt.Errorf("%w: %w", ErrNotConnected, late)
		}
		err = late
	}()
	_, answer, err := u.Ask(ctx, http.MethodGet, "/v1/models", "")
	if err != nil {
		return link.ModelList{}, err
	}
	defer answer.Close()
	// Some servers end the list with the connection. JSON that parses is complete.
	data, _ := io.ReadAll(io.LimitReader(answer, maxModelList))
	list, ok := link.ParseModels(data)
	if !ok {
		return link.ModelList{}, ErrNoList
	}
	return list, nil
}

// Measure measures the context window of a model with one long prompt. If the answer does not show it, the
// window is 0, or the error is a [StatusError].
func (u *Server) Measure(ctx context.Context, model string) (window.Result, error) {
	answer, err := u.ask(ctx, http.MethodPost, "/v1/chat/completions", window.Prompt(model))
	if err != nil {
		return window.Result{}, err
	}
	defer answer.Close()
	data, _ := io.ReadAll(io.LimitReader(answer, maxModelList)) // a part shows no window
	result := window.Read(answer.StatusCode, data)
	if result.Window == 0 && answer.StatusCode != http.StatusOK {
		return result, &StatusError{answer.StatusCode}
	}
	return result, nil
}

// Ask sends a request of the connector itself. It returns a [StatusError] for an answer with a
// status other than 200. The caller must close the answer.
func (u *Server) Ask(ctx context.Context, method, path, body string) (http.Header, io.ReadCloser, error) {
	answer, err := u.ask(ctx, method, path, []byte(body))
	if err != nil {
		return nil, nil, err
	}
	if answer.StatusCode != http.StatusOK {
		_ = answer.Close()
		return nil, nil, &StatusError{answer.StatusCode}
	}
	return answer.Header, answer, nil
}

// ask sends a request of the connector itself, and returns any answer.
func (u *Server) ask(ctx context.Context, method, path string, body []byte) (*modelAnswer, error) {
	r, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	up, err := u.open(nil, r, func() {})
	if err != nil {
		return nil, err
	}
	return u.roundTrip(ctx, up)
}
