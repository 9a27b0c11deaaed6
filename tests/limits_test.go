package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// keyAnswer has the fields of GET /v1/key that these tests use.
type keyAnswer struct {
	Data struct {
		UsageDaily    int64  `json:"usage_daily"`
		RequestsDaily int64  `json:"requests_daily"`
		LimitReset    string `json:"limit_reset"`

		Concurrency     int `json:"concurrency"`
		MaxOutputTokens int `json:"max_output_tokens"`

		Limits []struct {
			Limit string `json:"limit"`
			Of    string `json:"of"`
			Used  int64  `json:"used"`
		} `json:"limits"`
	} `json:"data"`
}

// TestLimits sets limits by commands, as an operator does. Quotas hold across kill -9.
func TestLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, harness.Options{})
	r.serve(t, "m", upstream.Echo)
	_, key := r.Gateway.Key(t, "laptop", "*")
	c := r.Gateway.Client(t, key)
	free := c.Post(t, harness.Chat("m", ""))
	if free.Status != 200 || free.Header.Get("X-Ratelimit-Limit-Requests") != "" {
		t.Errorf("without limits: status %d, headers %v", free.Status, free.Header)
	}
	r.Gateway.Command(t, nil, "key", "set", "laptop", "--requests-per-minute", "2", "--tokens-per-day", "2k")
	for want := range 2 {
		if a := c.Post(t, harness.Chat("m", "")); a.Status != 200 ||
			a.Header.Get("X-Ratelimit-Remaining-Requests") != fmt.Sprint(1-want) {
			t.Errorf("request %d: status %d, headers %v", want, a.Status, a.Header)
		}
	}
	a := c.Post(t, harness.Chat("m", ""))
	if e := a.ExpectError(t, 429, "requests", "rate_limit_exceeded"); !strings.Contains(e.Message,
		"This key is limited to 2 requests per minute. Please try again in ") {
		t.Errorf("the third request: %s", e.Message)
	}
	look := func() (k keyAnswer) {
		t.Helper()
		a := c.Do(t, "GET", "/v1/key", "")
		if err := json.Unmarshal([]byte(a.Body), &k); err != nil || a.Status != 200 {
			t.Fatalf("status %d, %v: %s", a.Status, err, a.Body)
		}
		return k
	}
	before := look()
	if before.Data.RequestsDaily != 3 || before.Data.UsageDaily == 0 || len(before.Data.Limits) != 2 ||
		before.Data.LimitReset != "daily" {
		t.Errorf("the key tells %+v", before)
	}
	if metrics := r.Metrics(t); !strings.Contains(metrics,
		`postern_limit_rejected_total{level="key",limit="requests_per_minute"} 1`) {
		t.Error("the refusal is not counted")
	}

	database := filepath.Join(r.Dir, "gateway.db")
	harness.Poll(t, limit, "the usage in "+database, nilContext(func() error {
		if !strings.Contains(string(read(t, database)), `"requests":4,`) {
			return errors.New("it is not there")
		}
		return nil
	}))
	_, other := r.Gateway.Key(t, "desk", "*") // a later write: the one before has taken effect
	r.Gateway.Process.Kill()
	r.Gateway.Restart(t)
	r.con.WaitState(t, "online", limit)
	if after := look(); after.Data.RequestsDaily != 3 || after.Data.UsageDaily != before.Data.UsageDaily {
		t.Errorf("after kill -9 the key tells %+v, not %+v", after, before)
	}
	r.Gateway.Command(t, nil, "account", "set", "default", "--requests-per-day", "4", "--concurrency", "8",
		"--max-output-tokens", "500")
	r.Gateway.Command(t, nil, "key", "set", "laptop", "--requests-per-minute", "0", "--tokens-per-day", "0",
		"--concurrency", "2")
	if k := look(); k.Data.Concurrency != 2 || k.Data.MaxOutputTokens != 500 {
		t.Errorf("the key tells %+v, not the lower ones of its limits and those of its account", k)
	}
	harness.Poll(t, limit, "an answer after the restart", func(context.Context) error {
		if a := c.Post(t, harness.Chat("m", "")); a.Status != 200 {
			return fmt.Errorf("status %d: %s", a.Status, a.Body)
		}
		return nil
	})
	desk := r.Gateway.Client(t, other)
	harness.Poll(t, limit, "the end of the request before", func(context.Context) error {
		if a = desk.Post(t, harness.Chat("m", "")); strings.Contains(a.Body, "try again in") {
			return fmt.Errorf("the answer is %s", a.Body)
		}
		return nil
	})
	if e := a.ExpectError(t, 429, "insufficient_quota", "insufficient_quota"); !strings.Contains(e.Message,
		"This account is limited to 4 requests per day and has used 4.") {
		t.Errorf("another key of the account: %s", e.Message)
	}
	if a.Header.Get("X-Should-Retry") != "false" {
		t.Errorf("a quota is not final: %v", a.Header)
	}
	if _, stderr, code := r.Gateway.Run(t, "key", "set", "laptop", "--tokens-per-day", "2T"); code != 2 ||
		!strings.Contains(stderr, "500k or 2M") {
		t.Errorf("a wrong limit: exit code %d, %s", code, stderr)
	}
}

// The requests of a key wait for each other.
func testKeyConcurrency(t *testing.T, g *harness.Gateway) {
	r := rigOf(t, g)
	release := make(chan struct{})
	var running atomic.Int32
	r.serve(t, "alone", func(x *upstream.Exchange) {
		if n := running.Add(1); n > 1 {
			t.Errorf("%d requests run at once", n)
		}
		x.Hold(release)
		running.Add(-1)
		upstream.Echo(x)
	})
	_, key := r.Gateway.Key(t, "laptop", "*")
	r.Gateway.Command(t, nil, "key", "set", "laptop", "--concurrency", "1")
	c := r.Gateway.Client(t, key)
	var answers []<-chan harness.Answer
	for range 3 {
		answers = append(answers, sendLater(t, c))
	}
	waitInflight(t, r.Gateway, "alone", 3)
	r.up.WaitRunning(t, 1)
	close(release)
	for _, answer := range answers {
		if a := <-answer; a.Status != 200 {
			t.Errorf("status %d: %s", a.Status, a.Body)
		}
	}
}

func sendLater(t *testing.T, c *harness.Client) <-chan harness.Answer {
	answer := make(chan harness.Answer, 1)
	go func() { answer <- c.Post(t, harness.Chat("alone", "")) }()
	return answer
}
