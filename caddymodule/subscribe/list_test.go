package subscribe

import (
	"slices"
	"sync"
	"testing"
)

func TestList(t *testing.T) {
	t.Parallel()
	var l List[int]
	l.Now().Call(1)
	var a, b []int
	stopA := l.Add(func(n int) { a = append(a, n) })
	stopB := l.Add(func(n int) { b = append(b, n) })
	l.Now().Call(2)
	before := l.Now()
	stopA()
	stopA()
	l.Now().Call(3)
	before.Call(4)
	stopB()
	l.Now().Call(5)
	if !slices.Equal(a, []int{2, 4}) || !slices.Equal(b, []int{2, 3, 4}) {
		t.Errorf("called with %v and %v", a, b)
	}
}

// A subscriber may end its own subscription during a call, while others are added and removed.
func TestListConcurrent(t *testing.T) {
	t.Parallel()
	var l List[int]
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				stop := l.Add(func(int) {})
				l.Now().Call(1)
				stop()
			}
		})
	}
	wg.Wait()
	if n := len(l.Now()); n != 0 {
		t.Errorf("%d subscribers are left", n)
	}
}
