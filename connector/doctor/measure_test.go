package doctor

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The window of a model is measured at each server that has the model.
func TestMeasure(t *testing.T) {
	g := startGateway(t)
	var answer atomic.Value // func(http.ResponseWriter)
	var long atomic.Int64
	box := serveBox(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/v1/models" || len(body) < 1000 {
			r.Body = io.NopCloser(bytes.NewReader(body))
			modelServer(w, r)
			return
		}
		long.Add(1)
		answer.Load().(func(http.ResponseWriter))(w)
	})
	c := g.config(map[string]string{"box": box.URL})
	for _, tt := range []struct {
		name, model string
		answer      func(w http.ResponseWriter)
		result      Result
		want        string
	}{
		{"refuses", "large", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			io.WriteString(w, `{"error":{"n_prompt_tokens":600013,"n_ctx":4096}}`)
		}, ResultOK, "large: the context window has 4096 tokens; the server refuses longer prompts"},
		{"cuts, as Ollama does", "large", func(w http.ResponseWriter) {
			io.WriteString(w, `{"usage":{"prompt_tokens":4098}}`)
		}, ResultWarning, "has 8192 tokens; the server cuts longer prompts and reports no error; if it is Ollama, set " +
			"OLLAMA_CONTEXT_LENGTH"},
		{"has room", "tiny", func(w http.ResponseWriter) {
			io.WriteString(w, `{"usage":{"prompt_tokens":600013}}`)
		}, ResultOK, "at least 600013 tokens"},
		{"does not count", "tiny", func(w http.ResponseWriter) {
			io.WriteString(w, `{}`)
		}, ResultWarning, "option context_window"},
		{"refuses the key", "tiny", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusForbidden)
		}, ResultFailed, "status 403"},
		{"has no such model", "other", nil, ResultSkipped, "it does not list the model other"},
		{"was not asked for", "", nil, "", ""},
	} {
		if tt.answer != nil {
			answer.Store(tt.answer)
		}
		f := diagnose(t, c, upgradeRequired, func(d *diagnosis) { d.measured = tt.model })["context window of box"]
		if f.Result != tt.result || !strings.Contains(f.Detail+"; "+f.Fix, tt.want) {
			t.Errorf("%s: %+v", tt.name, f)
		}
	}
	if n := long.Load(); n != 5 {
		t.Errorf("%d long prompts", n)
	}
	// An interruption ends it at once, without a finding.
	ctx, cancel := context.WithCancel(t.Context())
	answer.Store(func(http.ResponseWriter) { cancel() })
	err := Run(ctx, c, time.Minute, "tiny", func(f Finding) {
		if f.Check == "context window of box" {
			t.Errorf("interrupted: %+v", f)
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}
