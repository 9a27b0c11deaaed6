package wait

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := For(t.Context(), time.Minute); err != nil || time.Since(begun) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		cause := errors.New("the tunnel was lost")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		if err := For(ctx, time.Minute); !errors.Is(err, cause) || time.Since(begun) != time.Minute+time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
	})
}

// A change wakes all goroutines that wait for it. Each wait needs another change.
func TestChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Change
		c.Now()
		woken := make(chan int, 2)
		for i := range 2 {
			next := c.Next()
			go func() {
				<-next
				woken <- i
			}()
		}
		synctest.Wait()
		if len(woken) != 0 {
			t.Error("woken without a change")
		}
		c.Now()
		synctest.Wait()
		if len(woken) != 2 {
			t.Errorf("%d goroutines woke", len(woken))
		}
		select {
		case <-c.Next():
			t.Error("a change is seen twice")
		default:
		}
	})
}
