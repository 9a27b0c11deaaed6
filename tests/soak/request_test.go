package main

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Every ending and every form of request turns up, and nothing is slower than a
// client's patience.
func TestCompose(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	kinds := map[string]int{}
	for i := range 5000 {
		r := compose(random, int64(i))
		kinds[r.End.String()]++
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
	for _, kind := range []string{"whole", "dies", "fails", "reads", "leaves", "pauses", "deaf", "chat", "responses", "messages", "tool"} {
		if kinds[kind] == 0 {
			t.Errorf("of 5000 requests none is %q", kind)
		}
	}
}
