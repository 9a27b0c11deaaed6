package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestScriptSurvivesThePrompt(t *testing.T) {
	for _, s := range []script{
		{},
		{Tokens: 1},
		{Tokens: 150, Pace: 20 * time.Millisecond, Stamp: true},
		{Tokens: 9, Pace: 300 * time.Microsecond, Seed: 9999, Ragged: true},
	} {
		for _, padding := range []int{0, 64 << 10} {
			body := requestBody(s, padding)
			if !json.Valid(body) {
				t.Fatalf("%v: the body is no JSON: %.300s", s, body)
			}
			if len(body) < padding {
				t.Errorf("%v: the body has %d bytes, want %d", s, len(body), padding)
			}
			got, err := parseScript(body)
			if err != nil || got != s {
				t.Errorf("%v came back as %v, %v", s, got, err)
			}
			if m := modelOf(body); m != publicModel {
				t.Errorf("the model is %q", m)
			}
		}
	}
}

func TestScriptErrors(t *testing.T) {
	for _, body := range []string{"", "bench/", "bench/1,2,3,true/", "bench/1,2,x,true,true/", "bench/-1,2,3,true,true/", "bench/1,2,3,true,true"} {
		if s, err := parseScript([]byte(body)); err == nil {
			t.Errorf("%q is accepted as %v", body, s)
		}
	}
}

func TestCompletionIsAKilobyteOfJSON(t *testing.T) {
	b := appendCompletion(nil, publicModel)
	if !json.Valid(b) || len(b) < 900 || len(b) > 1200 {
		t.Errorf("%d bytes: %s", len(b), b)
	}
}

func TestStreamIsEventsOfJSON(t *testing.T) {
	s := script{Tokens: 200, Seed: 3}
	stream := string(s.appendStream(nil))
	events := strings.SplitAfter(stream, "\n\n")
	if last := events[len(events)-1]; last != "" {
		t.Fatalf("the stream ends within an event: %q", last)
	}
	events = events[:len(events)-1]
	if want := s.Tokens + 4; len(events) != want {
		t.Errorf("%d events, want %d", len(events), want)
	}
	if events[len(events)-1] != "data: [DONE]\n\n" {
		t.Errorf("the last event is %q", events[len(events)-1])
	}
	for _, e := range events[:len(events)-1] {
		data, ok := strings.CutPrefix(e, "data: ")
		if !ok || !json.Valid([]byte(data)) {
			t.Errorf("not an event of JSON: %q", e)
		}
	}
	if !utf8.ValidString(stream) || strings.Count(stream, "🦊") == 0 {
		t.Error("the stream has not the runes that it should have")
	}
	other := script{Tokens: 200, Seed: 4}
	if bytes.Equal(other.appendStream(nil), []byte(stream)) {
		t.Error("two seeds have the same stream")
	}
}

func TestStamp(t *testing.T) {
	before := monotonic()
	event, _ := script{Tokens: 1, Stamp: true}.appendEvent(nil, publicModel, 1)
	at, ok := stampOf(event)
	if !ok || at < before || at > monotonic() {
		t.Errorf("the stamp of %q is %d, %t", event, at, ok)
	}
	for _, line := range []string{"", "data: [DONE]", `{"content":"@12"}`, `{"content":"@12345678901234x6789"}`} {
		if _, ok := stampOf([]byte(line)); ok {
			t.Errorf("%q has a stamp", line)
		}
	}
}
