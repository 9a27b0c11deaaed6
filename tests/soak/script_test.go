package main

import (
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestScriptTravels(t *testing.T) {
	for _, want := range []script{
		{ID: 1, Tokens: 4, Pace: 20 * time.Millisecond, First: time.Second, Bulk: 9, Tool: true, End: whole},
		{ID: 1 << 40, Tokens: 100, End: dies},
		{ID: 3, End: fails500},
	} {
		for _, d := range dialects {
			r := &request{script: want, dialect: d, model: &deployment{name: "m"}}
			got, err := findScript(r.body())
			if err != nil || got != want {
				t.Errorf("%s: %+v, %v; want %+v", d, got, err, want)
			}
		}
	}
	if _, err := findScript([]byte(`{"model":"m"}`)); err == nil {
		t.Error("a request without a script has one")
	}
}

// Every ending and every form of request turns up, and nothing is slower than a
// client's patience.
func TestCompose(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	kinds := map[string]int{}
	for i := range 5000 {
		r := compose(random, int64(i))
		kinds[string(r.End)]++
		kinds[string(r.habit)]++
		kinds[string(r.dialect)]++
		if r.Tool {
			kinds["tool"]++
		}
		if took := r.First + time.Duration(r.Tokens)*r.Pace; took > grace-5*time.Second {
			t.Fatalf("an answer takes %v, as long as a gateway gives it when it ends", took)
		}
		if r.Bulk > 0 && r.dialect == responses {
			t.Fatal("a huge answer is one of responses")
		}
	}
	for _, kind := range []string{"whole", "dies", "error", "reads", "leaves", "pauses", "deaf", "chat", "responses", "messages", "tool"} {
		if kinds[kind] == 0 {
			t.Errorf("of 5000 requests none is %q", kind)
		}
	}
}

// The model server plays a script in the chat dialect so that a client that
// asked it directly would find the answer right.
func TestUpstreamPlaysScripts(t *testing.T) {
	u := &upstream{}
	for _, r := range []*request{
		{script: script{ID: 5, Tokens: 7, End: whole}},
		{script: script{ID: 6, Tokens: 7, Tool: true, End: whole}},
		{script: script{ID: 7, Tokens: 7, End: whole}, streamed: true},
		{script: script{ID: 8, Tokens: 300, Tool: true, End: whole}, streamed: true},
	} {
		r.dialect, r.model = chat, &deployment{name: "m"}
		w := httptest.NewRecorder()
		u.chat(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(string(r.body()))))
		read := readWhole
		if r.streamed {
			read = func(body io.Reader) (answer, error) { return readStream(body, func(int) error { return nil }) }
		}
		a, err := read(w.Body)
		if err != nil || !a.finished {
			t.Errorf("request %d: %+v, %v", r.ID, a, err)
		}
		if err := a.verify(r.script); err != nil {
			t.Errorf("request %d: %v", r.ID, err)
		}
	}
	if len(u.seen) != 4 || u.running != 0 {
		t.Errorf("it has seen %v, and runs %d", u.seen, u.running)
	}
}
