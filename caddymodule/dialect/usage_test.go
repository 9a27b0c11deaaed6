package dialect_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
)

// infoOf returns a call, and the AnswerInfo that its answer fills.
func infoOf(t *testing.T, op dialect.Operation, body string) (dialect.Call, *dialect.AnswerInfo) {
	t.Helper()
	info := &dialect.AnswerInfo{Wanted: true}
	call, derr := dialect.Decode(op, []byte(body), &dialect.Env{Info: info, NewID: dialect.NewID})
	if derr != nil {
		t.Fatal(derr)
	}
	return call, info
}

var (
	chat     = dialect.Operation{Kind: dialect.ChatCompletions, Dialect: dialect.Chat}
	messages = dialect.Operation{Kind: dialect.CreateMessage, Dialect: dialect.Messages}
)

func TestAnswerInfo(t *testing.T) {
	long := strings.Repeat("x", 200)
	const counted = `,"usage":{"prompt_tokens":1,"completion_tokens":1}`
	for name, c := range map[string]struct {
		body    string
		id      string
		reasons []string
	}{
		"a whole answer": {`{"id":"a","choices":[{"finish_reason":"length","index":1},{"finish_reason":"stop","index":0}]` +
			counted + `}`, "a", []string{"stop", "length"}},
		"without indexes": {
			`{"choices":[{"finish_reason":"stop"},{"finish_reason":"tool_calls"}]}`, "",
			[]string{"stop", "tool_calls"},
		},
		"not ended":          {`{"id":"a","choices":[{"finish_reason":null}]}`, "a", nil},
		"of the wrong types": {`{"id":7,"choices":[7,{"finish_reason":{}},[],[0]]}`, "", nil},
		"too long":           {`{"id":"` + long + `","choices":[{"finish_reason":"` + long + `"}]}`, "", nil},
		"embeddings":         {`{"object":"list","data":[]}`, "", nil},
		"not JSON":           {`{"id`, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			call, a := infoOf(t, chat, `{"model":"m","messages":[]}`)
			if _, _, _ = call.Answer([]byte(c.body)); a.ID != c.id || !slices.Equal(a.FinishReasons, c.reasons) {
				t.Errorf("%+v", a)
			}
		})
	}
	for _, c := range []struct {
		op   dialect.Operation
		body string
	}{
		{chat, `{"model":"m","stream":true,"n":2,"messages":[]}`},
		{messages, `{"model":"m","stream":true,"max_tokens":9,"messages":[{"role":"user","content":"u"}]}`},
	} {
		call, a := infoOf(t, c.op, c.body)
		stream := call.NewStream()
		for _, b := range []byte(`data: {"id":"a","choices":[[0],{"index":1,"finish_reason":"length"}]}` + "\n\n" +
			`data: {"id":"b","choices":[{"index":0,"finish_reason":"stop"}]}` + "\n\n" +
			`data: {"choices":[{"index":0,"finish_reason":"length"}]}` + "\n\ndata: [DONE]\n\n") {
			stream.Feed([]byte{b})
		}
		if a.ID != "a" || !slices.Equal(a.FinishReasons, []string{"stop", "length"}) {
			t.Errorf("of a stream of %s: %+v", c.op.Dialect, a)
		}
	}
}

func TestLimitOfOne(t *testing.T) {
	for name, want := range map[string]string{
		limits.RequestsPerMinute: "limited to 1 request per minute.",
		limits.SecondsPerDay:     "limited to 1 compute second per day.",
		limits.Concurrency:       "limited to 1 concurrent request,",
	} {
		if e := dialect.LimitReached(dialect.Limit{Name: name, Of: limits.OfKey, Max: 1}); !strings.Contains(e.Message,
			want) {
			t.Errorf("%s: %s", name, e.Message)
		}
	}
}

// A client that retries after Retry-After is not too early.
func TestRetryAfterOfLimit(t *testing.T) {
	for wait, want := range map[time.Duration]int{300 * time.Millisecond: 1, time.Second: 1, 1500 * time.Millisecond: 2} {
		if e := dialect.LimitReached(dialect.Limit{
			Name: limits.RequestsPerMinute, Of: limits.OfKey, Max: 5,
			Wait: wait,
		}); e.RetryAfter != want {
			t.Errorf("%v to wait: Retry-After is %d, want %d", wait, e.RetryAfter, want)
		}
	}
}
