package tests

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// Two groups use one model: each within its limits, and neither waits for the other. Then a user leaves one of them and
// joins it again, while it has a stream.
func testGroups(t *testing.T, g *harness.Gateway) {
	r := rigOf(t, g)
	var mu sync.Mutex
	running, most := map[string]int{}, map[string]int{}
	release := make(chan struct{})
	r.serve(t, "shared", func(x *upstream.Exchange) {
		team := "a"
		if strings.Contains(string(x.Request.Body), `"user":"b"`) {
			team = "b"
		}
		mu.Lock()
		running[team]++
		most[team] = max(most[team], running[team])
		mu.Unlock()
		x.Hold(release)
		mu.Lock()
		running[team]--
		mu.Unlock()
		upstream.Echo(x)
	})
	r.serve(t, "silent", func(x *upstream.Exchange) {
		x.Stream()
		x.Chunk(upstream.Role(up("silent")))
		x.Hold(nil)
	})
	const each = 20 // requests of a team, with two keys
	concurrency := map[string]int{"a": 2, "b": 3}
	answers := make(chan harness.Answer, 2*each)
	clients := map[string]*harness.Client{}
	for team, n := range concurrency {
		r.Gateway.Command(t, nil, "group", "create", "--name", team, "--concurrency", fmt.Sprint(n), "--requests-per-day",
			fmt.Sprint(each))
		for i := range 2 {
			name := fmt.Sprint(team, i)
			_, key := r.Gateway.Key(t, name, "*")
			r.Gateway.Command(t, nil, "key", "set", name, "--group", team)
			clients[name] = r.Gateway.Client(t, key)
			for range each / 2 {
				go func() { answers <- clients[name].Post(t, harness.Chat("shared", `,"user":"`+team+`"`)) }()
			}
		}
	}
	waitInflight(t, r.Gateway, "shared", 2*each)
	r.up.WaitRunning(t, 5)
	close(release)
	for range 2 * each {
		served(t, <-answers, "a request of a group")
	}
	mu.Lock()
	if most["a"] != 2 || most["b"] != 3 {
		t.Errorf("%v ran at once, want %v", most, concurrency)
	}
	mu.Unlock()
	a := clients["a0"].Post(t, harness.Chat("shared", ""))
	a.ExpectError(t, http.StatusTooManyRequests, "insufficient_quota", "insufficient_quota")
	if !strings.Contains(a.Body, `The group \"a\" is limited to 20 requests per day`) {
		t.Errorf("after the last request of the day: %s", a.Body)
	}
	r.Gateway.Command(t, nil, "group", "set", "a", "--requests-per-day", "0")
	served(t, clients["a0"].Post(t, harness.Chat("shared", "")), "without that limit")
	r.leaves(t)
}

// leaves lets a user leave and join a group during streams.
func (r *rig) leaves(t *testing.T) {
	t.Helper()
	r.Manage(t, http.MethodPost, "/users", map[string]string{"name": "leaver", "password": "correct-horse-battery"}, nil)
	r.Manage(t, http.MethodPatch, "/accounts/"+r.Gateway.Account, map[string]bool{"groups_only": true}, nil)
	r.Gateway.Command(t, nil, "group", "set", "a", "--scope", "silent", "--member", "leaver")
	_, secret := r.Gateway.Key(t, "leavers", "*")
	r.Gateway.Command(t, nil, "key", "set", "leavers", "--owner", "leaver")
	c := r.Gateway.Client(t, secret)
	for range 3 {
		stream := c.Stream(t, harness.Chat("silent", `,"stream":true`))
		stream.Expect(t, upstream.Role("silent"))
		r.Gateway.Command(t, nil, "group", "set", "a", "--member=")
		rest, err := stream.Rest()
		if err != nil || !strings.Contains(rest, `"code":"model_not_found"`) {
			t.Errorf("the stream ended with %q, %v", rest, err)
		}
		if a := c.Post(t, harness.Chat("silent", "")); a.Status != http.StatusNotFound {
			t.Errorf("after the user has left: %d %s", a.Status, a.Body)
		}
		if a := c.Do(t, http.MethodGet, "/v1/models", ""); strings.Contains(a.Body, "silent") {
			t.Errorf("the list of models: %s", a.Body)
		}
		r.Gateway.Command(t, nil, "group", "set", "a", "--member", "leaver")
	}
	stream := c.Stream(t, harness.Chat("silent", `,"stream":true`))
	stream.Expect(t, upstream.Role("silent"))
	r.Gateway.Command(t, nil, "group", "remove", "a")
	if rest, _ := stream.Rest(); !strings.Contains(rest, `"code":"model_not_found"`) {
		t.Errorf("after the group was removed, the stream ended with %q", rest)
	}
}
