package kept

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/scope"
)

// testKept returns a store and its clock.
func testKept() (*Store, *time.Time) {
	now := time.Unix(1e9, 0)
	return NewStore(func() time.Time { return now }), &now
}

// scopeOf returns a parsed scope.
func scopeOf(text string) scope.Scope {
	s, err := scope.Parse(text)
	if err != nil {
		panic(err)
	}
	return s
}

// viewOf returns the view of a key for all models.
func viewOf(k *Store, account, key string) View {
	return k.View(Owner{account, key}, account, scopeOf("*"))
}

// keptOf returns a response with one input item and two output items.
func keptOf(id, text string) Response {
	return Response{
		Model:  "llama3",
		Body:   []byte(`{"id":"` + id + `"}`),
		Input:  [][]byte{[]byte(`{"id":"in_` + id + `","text":"` + text + `"}`)},
		Output: [][]byte{[]byte(`{"id":"out_` + id + `"}`), []byte(`{"type":"no id"}`)},
	}
}

func TestKeptResponse(t *testing.T) {
	k, _ := testKept()
	v := viewOf(k, "a", "k1")
	r := keptOf("resp_1", "x")
	v.Keep("resp_1", r)
	r.Body[0], r.Input[0][0] = '!', '!'
	got, ok := v.Response("resp_1")
	if !ok || string(got.Body) != `{"id":"resp_1"}` || len(got.Input) != 1 || len(got.Output) != 2 ||
		got.Input[0][0] != '{' {
		t.Errorf("kept %q", got)
	}
	for _, id := range []string{"in_resp_1", "out_resp_1"} {
		if raw, ok := v.Item(id); !ok || !strings.Contains(string(raw), id) {
			t.Errorf("item %s is %q", id, raw)
		}
	}
	v.Delete("resp_1")
	if _, ok := v.Response("resp_1"); ok {
		t.Error("the response outlives its deletion")
	}
	if _, ok := v.Item("in_resp_1"); ok {
		t.Error("an item outlives its response")
	}
	if k.shares.size != 0 || len(k.responses)+len(k.items)+k.age.Len()+len(k.shares.children) != 0 {
		t.Errorf("%d bytes are left", k.shares.size)
	}
}

// A response belongs to its key, and is visible only within the key's scope. Owners without a key are
// accounts whose keys share responses.
func TestKeptResponsesAreTheirOwners(t *testing.T) {
	k, _ := testKept()
	owner := viewOf(k, "a", "k1")
	owner.Keep("resp_1", keptOf("resp_1", "x"))
	for name, v := range map[string]View{
		"another key":      viewOf(k, "a", "k2"),
		"another account":  viewOf(k, "b", "k1"),
		"keys that share":  viewOf(k, "a", ""),
		"a narrower scope": k.View(Owner{"a", "k1"}, "a", scopeOf("qwen*")),
		"nothing is kept":  {},
	} {
		if _, ok := v.Response("resp_1"); ok {
			t.Errorf("%s: sees the response", name)
		}
		if _, ok := v.Item("in_resp_1"); ok {
			t.Errorf("%s: sees an item", name)
		}
		v.Delete("resp_1")
		if _, ok := owner.Response("resp_1"); !ok {
			t.Fatalf("%s: deletes the response", name)
		}
	}
	viewOf(k, "a", "").Keep("resp_2", keptOf("resp_2", "x"))
	if _, ok := k.View(Owner{"a", ""}, "a", scopeOf("llama*")).Response("resp_2"); !ok {
		t.Error("what is shared is not seen")
	}
}

func TestKeptResponsesExpire(t *testing.T) {
	k, now := testKept()
	v := viewOf(k, "a", "k1")
	v.Keep("old", keptOf("old", "x"))
	*now = now.Add(10 * time.Minute)
	v.Keep("new", keptOf("new", "x"))
	*now = now.Add(20*time.Minute - 1)
	if _, ok := v.Response("old"); !ok {
		t.Error("gone before 30 minutes")
	}
	*now = now.Add(1)
	if _, ok := v.Response("old"); ok {
		t.Error("there after 30 minutes")
	}
	if _, ok := v.Item("in_new"); !ok {
		t.Error("the newer one is gone too")
	}
	*now = now.Add(time.Hour)
	if k.Expire(); len(k.items) != 0 || k.shares.size != 0 {
		t.Error("memory is held")
	}
}

func TestKeptResponsesAreBounded(t *testing.T) {
	k, _ := testKept()
	v := viewOf(k, "a", "k1")
	text := strings.Repeat("x", 1<<20)
	for n := range 100 {
		id := fmt.Sprint("r", n)
		v.Keep(id, keptOf(id, text))
		if k.shares.size > MaxBytes {
			t.Fatalf("%d bytes are kept", k.shares.size)
		}
	}
	if len(k.responses) < 60 {
		t.Errorf("only %d responses are kept", len(k.responses))
	}
	if _, ok := v.Response("r0"); ok {
		t.Error("the oldest is kept")
	}
	if _, ok := v.Response("r99"); !ok {
		t.Error("the newest is not kept")
	}
	v.Keep("huge", keptOf("huge", strings.Repeat("x", MaxBytes)))
	if _, ok := v.Response("huge"); ok || len(k.responses) < 60 {
		t.Error("a response that does not fit has pushed others out")
	}
}

// A key's responses displace its own before those of others, and those of its account before those of
// other accounts.
func TestKeptResponsesHaveShares(t *testing.T) {
	k, _ := testKept()
	text := strings.Repeat("x", 1<<20)
	fill := func(account, key string, count int) {
		for n := range count {
			id := fmt.Sprint(key, n)
			viewOf(k, account, key).Keep(id, keptOf(id, text))
		}
	}
	kept := func(account, key string) (count int) {
		for id := range k.responses {
			if id.owner == (Owner{account, key}) {
				count++
			}
		}
		return count
	}
	fill("a", "modest", 5)
	fill("b", "other", 10)
	fill("a", "greedy", 200)
	if kept("a", "modest") != 5 || kept("b", "other") != 10 || kept("a", "greedy") < 45 {
		t.Errorf("kept %d, %d and %d", kept("a", "modest"), kept("b", "other"), kept("a", "greedy"))
	}
	fill("b", "other", 100) // as many as the account has room for
	fill("a", "modest", 100)
	if n := kept("b", "other"); n < 31 || n > 32 {
		t.Errorf("the other account has %d", n)
	}
	if m, g := kept("a", "modest"), kept("a", "greedy"); m < 15 || m > 16 || g < 15 || g > 16 {
		t.Errorf("the keys of one account have %d and %d", m, g)
	}
	for size, want := range map[int]int{MaxSize - 1<<10: 1, MaxSize: 0} {
		viewOf(k, "c", "k").Delete("large")
		viewOf(k, "c", "k").Keep("large", keptOf("large", strings.Repeat("x", size)))
		if kept("c", "k") != want {
			t.Errorf("of %d bytes: kept %d", size, kept("c", "k"))
		}
	}
}

// A response with very many items is not kept. The size of items includes their cost for a request that
// refers to them.
// A user with many keys displaces its own responses, not those of others in the account.
func TestManyKeysOfOneOwner(t *testing.T) {
	k, _ := testKept()
	k.limit = 100 << 10
	text := strings.Repeat("x", 3<<10)
	view := func(user, key string) View { return k.View(Owner{"a", key}, user, scopeOf("*")) }
	for i := range 4 {
		id := fmt.Sprint("resp_", i)
		view("few", "k1").Keep(id, keptOf(id, text))
	}
	for i := range 1000 {
		id := fmt.Sprint("resp_many_", i)
		view("many", fmt.Sprint("key", i)).Keep(id, keptOf(id, text))
	}
	for i := range 4 {
		if _, ok := view("few", "k1").Response(fmt.Sprint("resp_", i)); !ok {
			t.Errorf("response %d of another user is gone", i)
		}
	}
	if k.shares.size > k.limit || k.shares.size < k.limit/2 {
		t.Errorf("%d bytes of %d are kept", k.shares.size, k.limit)
	}
}

func TestKeptItemsAreBounded(t *testing.T) {
	k, _ := testKept()
	v := viewOf(k, "a", "k1")
	item := []byte(`{}`)
	many := Response{Model: "m", Body: item}
	for range MaxItems {
		many.Input = append(many.Input, item)
	}
	v.Keep("many", many)
	if _, ok := v.Response("many"); !ok || k.shares.size < MaxItems<<10 {
		t.Errorf("kept %v, counted as %d bytes", ok, k.shares.size)
	}
	many.Output = [][]byte{item}
	v.Keep("more", many)
	if _, ok := v.Response("more"); ok {
		t.Error("a response of too many items is kept")
	}
}

// An item of several responses, as of those of a conversation, is kept as long as the newest of
// them.
func TestItemOfSeveralResponses(t *testing.T) {
	k, _ := testKept()
	v := viewOf(k, "a", "k1")
	first := keptOf("r1", "x")
	second := keptOf("r2", "x")
	second.Input = append(append(first.Input, first.Output...), second.Input...)
	v.Keep("r1", first)
	v.Keep("r2", second)
	v.Delete("r1")
	for _, id := range []string{"in_r1", "out_r1", "in_r2"} {
		if _, ok := v.Item(id); !ok {
			t.Errorf("%s is gone", id)
		}
	}
	v.Keep("r2", keptOf("r2", "y"))
	if _, ok := v.Item("in_r1"); ok || k.age.Len() != 1 {
		t.Error("a response that was replaced is still there")
	}
}

// The sizes of all shares add up to the size of the kept responses.
func TestSharesAddUp(t *testing.T) {
	k, _ := testKept()
	k.limit = 1 << 20
	for n := range 5000 {
		id := fmt.Sprint("r", n)
		viewOf(k, fmt.Sprint("a", n%7), fmt.Sprint("k", n%97)).Keep(id, keptOf(id, strings.Repeat("x", n%977)))
	}
	var total int64
	for _, account := range k.shares.children {
		var size int64
		for _, key := range account.children {
			size += key.size
		}
		if total += size; size != account.size {
			t.Fatalf("an account holds %d, its keys %d", account.size, size)
		}
	}
	if total != k.shares.size || total > k.limit || total < k.limit*9/10 {
		t.Errorf("%d bytes are kept, counted as %d", total, k.shares.size)
	}
}

func TestKeptResponsesAreSafeForConcurrentUse(t *testing.T) {
	k := NewStore(time.Now)
	var g sync.WaitGroup
	for i := range 8 {
		g.Go(func() {
			v := viewOf(k, "a", fmt.Sprint("k", i%3))
			for n := range 200 {
				id := fmt.Sprint("r", n%20)
				v.Keep(id, keptOf(id, "x"))
				v.Response(id)
				v.Item("in_" + id)
				if (n+i)%5 == 0 {
					v.Delete(id)
				}
			}
		})
	}
	g.Wait()
}
