package console

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
)

func TestActivity(t *testing.T) {
	g := newGateway(t)
	has(t, mainOf(g.page("/console/activity")), "No requests yet", `href="/console/start#request-title"`)
	g.log.Record(store.DefaultAccount, activity.Request{
		ID: "req_1", Time: time.Now(), KeyID: "key_1", KeyName: "laptop", Deployment: "qwen3", Dialect: "messages", Operation: "messages",
		Status: 200, Streamed: true, DurationMillis: 2340, FirstTokenMillis: 210, InputTokens: 12934, OutputTokens: 312,
	})
	g.log.Record(store.DefaultAccount, activity.Request{Time: time.Now(), KeyName: mean, Deployment: mean, Dialect: "chat", Status: 404, ErrorClass: activity.CallerError, DurationMillis: 1})
	page := g.page("/console/activity")
	plain(t, page)
	main := mainOf(page)
	has(t, main, "laptop", "qwen3", "messages", "2.3 s", "210 ms", "12\u202f934", `badge-ok">200`, `badge-warn">404`)
	found := mainOf(g.page("/console/activity?q=LAPTOP+200"))
	has(t, found, "qwen3")
	lacks(t, found, `badge-warn">404`)
	has(t, g.page("/console/activity?q=nothing"), "None of the last 2 requests matches")
}

func TestActivityOfAnotherAccount(t *testing.T) {
	g := newGateway(t)
	g.log.Record(store.DefaultAccount, activity.Request{Time: time.Now(), KeyName: "laptop", Deployment: "qwen3", Status: 200})
	if _, err := g.store.CreateAccount(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	g.signInAs("other", "eve")
	main := mainOf(g.page("/console/activity"))
	has(t, main, "No requests yet")
	lacks(t, main, "laptop", "qwen3")
}

func TestNumbers(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "", time.Microsecond: "<1 ms", 2345 * time.Microsecond: "2.3 ms", 21 * time.Millisecond: "21 ms",
		1500 * time.Millisecond: "1.5 s", 99 * time.Second: "99.0 s", 125 * time.Second: "2 min 5 s",
	} {
		if got := seconds(d); got != want {
			t.Errorf("seconds(%v) = %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 7: "7", 999: "999", 1000: "1\u202f000", 1234567: "1\u202f234\u202f567"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}
