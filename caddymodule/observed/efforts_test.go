package observed

import (
	"fmt"
	"testing"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/store"
)

func TestEfforts(t *testing.T) {
	b := newBench()
	check := func(what, want string) {
		t.Helper()
		if got := fmt.Sprint(b.Table.Efforts(&b.d)); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("not sent", "{[] [] []}")
	b.d.Options.Efforts = `{"none":"low","max":"high"}`
	check("one is sent", "{[] [max] []}")
	b.d.Options.Reasoning = true
	check("all are sent", "{[] [low medium high xhigh max] []}")
	b.Effort(&b.d, "max", false)
	b.Effort(&b.d, "low", true)
	b.Effort(&b.d, "low", false)
	check("an effort that has worked is never rejected", "{[low] [medium high xhigh] [max]}")
	b.Effort(&b.d, "max", true)
	check("an answer that was under way", "{[low max] [medium high xhigh] []}")

	for i := range 1000 {
		b.Effort(&b.d, fmt.Sprint("invented", i), i%2 == 0)
	}
	b.Effort(&b.d, "", true)
	for _, name := range compat.Efforts {
		b.Effort(&b.d, name, false)
	}
	check("all", "{[low max] [] [medium high xhigh]}")
	if len(b.Table.efforts) != len(compat.Efforts) {
		t.Errorf("%d efforts are kept", len(b.Table.efforts))
	}

	before := b.d
	b.d.UpdatedAt = b.now
	b.OnChange(store.Change{Kind: store.KindDeployment, Account: "default", ID: "m"})
	b.Effort(&before, "low", true) // of a request that began before the change
	check("after a change", "{[] [low medium high xhigh max] []}")
	if len(b.Table.efforts) != 0 {
		t.Errorf("%d efforts are kept of a changed deployment", len(b.Table.efforts))
	}
}

func TestEffortsAreCheap(t *testing.T) {
	b := newBench()
	b.Effort(&b.d, "low", true)
	if n := testing.AllocsPerRun(100, func() {
		b.Effort(&b.d, "low", true)
		b.EffortWorks(&b.d, "low")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
