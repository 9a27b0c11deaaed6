package fair

import "testing"

// A waiter that may not be the next one keeps its turn, an older one comes before the younger ones of its group,
// and a turn that was not used comes back.
func TestTurnsSkipped(t *testing.T) {
	t.Parallel()
	var turns Turns[string, string]
	a, b := []string{"a", "1"}, []string{"b", "2"}
	turns.Push(a, "a2")
	turns.Push(a, "a3")
	turns.Push(b, "b1")
	turns.Insert(a, "a1", func(w string) bool { return w > "a1" })
	next := func(want string, except ...string) {
		t.Helper()
		got, _ := turns.First(func(w string) bool { return len(except) == 0 || w != except[0] })
		if got != want {
			t.Errorf("%q is next, not %q", got, want)
		}
	}
	next("a1")
	next("a2", "a1")
	turns.Take(a, "a1")
	next("b1")
	turns.Return(a)
	next("a2")
	turns.Return([]string{"c", "3"})
	if _, ok := turns.First(func(string) bool { return false }); ok || turns.Len() != 3 {
		t.Error("no waiter may be next, but one is")
	}
}
