package newest

import "testing"

func TestStack(t *testing.T) {
	var s Stack[string]
	expect := func(when, want string) {
		t.Helper()
		if got, ok := s.Newest(); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v, want %q", when, got, ok, want)
		}
	}
	expect("empty", "")
	s.Push("a")
	s.Push("b")
	expect("two", "b")
	s.Remove("b")
	expect("rolled back", "a")
	s.Push("b")
	s.Remove("a")
	expect("reloaded", "b")
	s.Remove("none")
	s.Remove("b")
	expect("stopped", "")
}
