package observed

import (
	"testing"
	"time"
)

// Requests of two keys at once count for an hour, at one server.
func TestShared(t *testing.T) {
	play(t, func(r *rig) {
		expect := func(when string, want bool) {
			t.Helper()
			if r.Shared(&m) != want {
				t.Errorf("%s: %v", when, !want)
			}
		}
		begin := func(key string) *Attempt {
			a := r.Begin(&m, "con_1", key, true)
			return &a
		}
		first, second := begin("key_1"), begin("key_1")
		expect("two requests of a key", false)
		first.End()
		second.End()
		begin("key_2").End()
		expect("one key after the other", false)

		first = begin("key_1")
		second = begin("key_2")
		first.End()
		second.End()
		time.Sleep(time.Hour - time.Second)
		expect("two keys at once, almost an hour ago", true)
		time.Sleep(time.Second)
		expect("an hour ago", false)
	})
}
