package events

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/postern-dev/postern/tests/rig/caught"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// crashingEmitter panics for the first event.
type crashingEmitter struct{ emitted chan Event }

func (c crashingEmitter) Emit(e Event) {
	if e.Name == "first" {
		panic(caught.Secret)
	}
	c.emitted <- e
}

// crashingTransport panics for the first post.
type crashingTransport struct{ posted chan string }

func (c crashingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(c.posted) == 0 {
		c.posted <- "first"
		panic(caught.Secret)
	}
	c.posted <- "next"
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// Events are still emitted after a panic of a handler, and posted after a panic of the webhook.
func TestPanicOfEvent(t *testing.T) {
	log := caught.New()
	f := newFeed(Options{Logger: log.Logger})
	defer f.close()
	receiver := crashingEmitter{make(chan Event, 1)}
	f.Push(receiver)
	f.add(Event{Name: "first"})
	f.add(Event{Name: "next"})
	if e := wait.For(t, receiver.emitted, "the next event"); e.Name != "next" {
		t.Errorf("emitted %q", e.Name)
	}
	f.Remove(receiver) // waits for the turn
	log.Expect(t, "emitting an event", 1)

	var lost []string
	w := NewWebhook(WebhookOptions{
		URL: &url.URL{Scheme: "http", Host: "receiver"}, Logger: log.Logger,
		Lost: func(reason string, _ int) { lost = append(lost, reason) },
	})
	posts := crashingTransport{make(chan string, 2)}
	w.client.Transport = posts
	w.Post("default", "first", "1", Payload{})
	w.Post("default", "next", "2", Payload{})
	w.Close(true)
	log.Expect(t, "posting an event", 1)
	if len(posts.posted) != 2 || len(lost) != 1 || lost[0] != LostRefused {
		t.Errorf("%d posts, lost %q", len(posts.posted), lost)
	}
}
