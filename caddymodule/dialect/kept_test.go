package dialect

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// testKept returns a keeper and its clock.
func testKept() (*KeptResponses, *time.Time) {
	now := time.Unix(1e9, 0)
	return NewKeptResponses(func() time.Time { return now }), &now
}

// keptOf is a response with one item in and one out.
func keptOf(id, text string) KeptResponse {
	return KeptResponse{
		Body:   []byte(`{"id":"` + id + `"}`),
		Input:  [][]byte{[]byte(`{"id":"in_` + id + `","text":"` + text + `"}`)},
		Output: [][]byte{[]byte(`{"id":"out_` + id + `"}`), []byte(`{"type":"no id"}`)},
	}
}

func TestKeptResponse(t *testing.T) {
	k, _ := testKept()
	r := keptOf("resp_1", "x")
	k.Keep("a", "resp_1", r)
	r.Body[0], r.Input[0][0] = '!', '!'
	got, ok := k.Response("a", "resp_1")
	if !ok || string(got.Body) != `{"id":"resp_1"}` || len(got.Input) != 1 || len(got.Output) != 2 || got.Input[0][0] != '{' {
		t.Errorf("kept %q", got)
	}
	for _, id := range []string{"in_resp_1", "out_resp_1"} {
		if raw, ok := k.Item("a", id); !ok || !strings.Contains(string(raw), id) {
			t.Errorf("item %s is %q", id, raw)
		}
	}
	if _, ok := k.Response("b", "resp_1"); ok {
		t.Error("another account sees the response")
	}
	if _, ok := k.Item("b", "in_resp_1"); ok {
		t.Error("another account sees an item")
	}
	if k.Delete("b", "resp_1") {
		t.Error("another account deletes the response")
	}
	if !k.Delete("a", "resp_1") || k.Delete("a", "resp_1") {
		t.Error("deleting tells the wrong thing")
	}
	if _, ok := k.Item("a", "in_resp_1"); ok {
		t.Error("an item outlives its response")
	}
	if k.size != 0 || len(k.responses)+len(k.items)+k.age.Len() != 0 {
		t.Errorf("%d bytes are left", k.size)
	}
}

func TestKeptResponsesExpire(t *testing.T) {
	k, now := testKept()
	k.Keep("a", "old", keptOf("old", "x"))
	*now = now.Add(10 * time.Minute)
	k.Keep("a", "new", keptOf("new", "x"))
	*now = now.Add(20*time.Minute - 1)
	if _, ok := k.Response("a", "old"); !ok {
		t.Error("gone before 30 minutes")
	}
	*now = now.Add(1)
	if _, ok := k.Response("a", "old"); ok {
		t.Error("there after 30 minutes")
	}
	if _, ok := k.Item("a", "in_new"); !ok {
		t.Error("the newer one is gone too")
	}
	*now = now.Add(time.Hour)
	if k.Expire(); len(k.items) != 0 || k.size != 0 {
		t.Error("memory is held")
	}
}

func TestKeptResponsesAreBounded(t *testing.T) {
	k, _ := testKept()
	text := strings.Repeat("x", 1<<20)
	for n := range 100 {
		id := fmt.Sprint("r", n)
		k.Keep("a", id, keptOf(id, text))
		if k.size > KeptBytes {
			t.Fatalf("%d bytes are kept", k.size)
		}
	}
	if len(k.responses) < 60 {
		t.Errorf("only %d responses are kept", len(k.responses))
	}
	if _, ok := k.Response("a", "r0"); ok {
		t.Error("the oldest is kept")
	}
	if _, ok := k.Response("a", "r99"); !ok {
		t.Error("the newest is not kept")
	}
	k.Keep("a", "huge", keptOf("huge", strings.Repeat("x", KeptBytes)))
	if _, ok := k.Response("a", "huge"); ok || len(k.responses) < 60 {
		t.Error("a response that does not fit has pushed others out")
	}
}

// An item that several responses hold, as those of a conversation do, stays
// as long as the newest of them.
func TestItemOfSeveralResponses(t *testing.T) {
	k, _ := testKept()
	first := keptOf("r1", "x")
	second := keptOf("r2", "x")
	second.Input = append(append(first.Input, first.Output...), second.Input...)
	k.Keep("a", "r1", first)
	k.Keep("a", "r2", second)
	k.Delete("a", "r1")
	for _, id := range []string{"in_r1", "out_r1", "in_r2"} {
		if _, ok := k.Item("a", id); !ok {
			t.Errorf("%s is gone", id)
		}
	}
	k.Keep("a", "r2", keptOf("r2", "y"))
	if _, ok := k.Item("a", "in_r1"); ok || k.age.Len() != 1 {
		t.Error("a response that was replaced is still there")
	}
}

func TestKeptResponsesAreSafeForConcurrentUse(t *testing.T) {
	k := NewKeptResponses(time.Now)
	var g sync.WaitGroup
	for i := range 8 {
		g.Go(func() {
			for n := range 200 {
				id := fmt.Sprint("r", n%20)
				k.Keep("a", id, keptOf(id, "x"))
				k.Response("a", id)
				k.Item("a", "in_"+id)
				if (n+i)%5 == 0 {
					k.Delete("a", id)
				}
			}
		})
	}
	g.Wait()
}
