package newest

import "testing"

func TestStack(t *testing.T) {
	var s Stack[string, int]
	expect := func(when string, want int) {
		t.Helper()
		if got, ok := s.Newest(); got != want || ok != (want != 0) {
			t.Errorf("%s: %d, %v, want %d", when, got, ok, want)
		}
	}
	expect("empty", 0)
	s.Push("a", 1)
	s.Push("b", 2)
	expect("two", 2)
	s.Remove("b")
	expect("rolled back", 1)
	s.Push("b", 3)
	s.Remove("a")
	expect("reloaded", 3)
	s.Remove("none")
	s.Remove("b")
	expect("stopped", 0)
	if s.Len() != 0 {
		t.Errorf("%d are left", s.Len())
	}
}
