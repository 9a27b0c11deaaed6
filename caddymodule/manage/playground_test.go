package manage_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// playGateway returns a gateway with the deployment "public".
func playGateway(t *testing.T, server http.HandlerFunc) *gateway {
	t.Helper()
	g := newGateway(t)
	home := g.connector("default", "home", map[string]http.Handler{"ollama": server})
	g.deployment("public", home, "", "upstream-model")
	return g
}

func TestPlay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked string
		g := playGateway(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			asked = string(body)
			events("wait", think, "wait", hello, "wait", more, `{"choices":[{"delta":{},"finish_reason":"length"}]}`, usage, done)(w, r)
		})
		warm := 1.5
		var pieces []manage.Piece
		got, err := g.service.Play(asOperator(t.Context()), manage.Play{
			Model: "public", System: "Be brief.", Prompt: "quartz-sphinx", Temperature: &warm, MaxTokens: 20, Stop: []string{"END"},
		}, func(p manage.Piece) { pieces = append(pieces, p) })
		if err != nil || got.Error != "" || got.Answer != "Hello\n\x1b[31m" || got.Thinking != "hm" || !got.Cut || got.Tokens != 11 || got.FirstTokenMillis != 100 || got.TokensPerSecond != 50 || got.Connector != "home" {
			t.Errorf("%+v, %v", got, err)
		}
		if fmt.Sprint(pieces) != "[{ hm} {Hel } {lo\n\x1b[31m }]" {
			t.Errorf("%q", pieces)
		}
		for _, part := range []string{`"model":"upstream-model"`, `Be brief.`, `quartz-sphinx`, `"temperature":1.5`, `"max_tokens":20`, `"stop":["END"]`, `"stream":true`} {
			if !strings.Contains(asked, part) {
				t.Errorf("no %s in %s", part, asked)
			}
		}
		recent := g.activity.Recent("default")
		if len(recent) != 1 || recent[0].Operation != activity.Playground || recent[0].OutputTokens != 11 || recent[0].InputTokens == 0 || !recent[0].Estimated || recent[0].KeyID != "" || strings.Contains(fmt.Sprint(recent), "quartz") {
			t.Errorf("%+v", recent)
		}
	})
}

// A model that ignores the limit of tokens is stopped.
func TestPlayIsBounded(t *testing.T) {
	var sent atomic.Int64
	g := playGateway(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "data: "+hello+"\n\n"); err != nil {
				return
			}
			sent.Add(1)
		}
	})
	got, err := g.service.Play(asOperator(t.Context()), manage.Play{Model: "public", Prompt: "Hi", MaxTokens: 10}, nil)
	if err != nil || !got.Cut || got.Answer != strings.Repeat("Hel", 20) {
		t.Errorf("%d bytes, %v", len(got.Answer), err)
	}
}

// An account has few answers at a time.
func TestPlaysAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := playGateway(t, events("wait", hello, stop, done))
		results := make(chan error, 5)
		for range 5 {
			go func() {
				_, err := g.service.Play(asOperator(t.Context()), manage.Play{Model: "public", Prompt: "Hi"}, nil)
				results <- err
			}()
		}
		time.Sleep(time.Second)
		failed := 0
		for range 5 {
			if err := <-results; errors.Is(err, store.ErrLimit) {
				failed++
			} else if err != nil {
				t.Error(err)
			}
		}
		if failed != 1 {
			t.Errorf("%d of 5 were refused", failed)
		}
		if _, err := g.service.Play(asOperator(t.Context()), manage.Play{Model: "public", Prompt: "Hi"}, nil); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
