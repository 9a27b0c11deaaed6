package observed

import (
	"fmt"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/store"
)

func TestEfforts(t *testing.T) {
	b := newBench()
	check := func(what, want string) {
		t.Helper()
		if got := fmt.Sprint(b.Table.Efforts(&b.d, "")); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	check("not sent", "{[] [] []}")
	b.d.Options.Efforts = `{"none":"low","max":"high"}`
	check("one is sent", "{[] [max] []}")
	b.d.Options.Reasoning = true
	check("all are sent", "{[] [low medium high xhigh max] []}")
	b.Effort(&b.d, "ann", "max", true, false)
	b.Effort(&b.d, "ann", "low", true, true)
	b.Effort(&b.d, "ann", "low", true, false)
	check("an effort that has worked is never rejected", "{[low] [medium high xhigh] [max]}")
	b.Effort(&b.d, "ann", "max", true, true)
	check("an answer that was under way", "{[low max] [medium high xhigh] []}")

	for i := range 1000 {
		b.Effort(&b.d, "ann", fmt.Sprint("invented", i), true, i%2 == 0)
	}
	b.Effort(&b.d, "ann", "", true, true)
	for _, name := range compat.Efforts {
		b.Effort(&b.d, "ann", name, true, false)
	}
	check("all", "{[low max] [] [medium high xhigh]}")
	if len(b.Table.efforts) != len(compat.Efforts) {
		t.Errorf("%d efforts are kept", len(b.Table.efforts))
	}

	before := b.d
	b.d.UpdatedAt = b.now
	b.OnChange(store.Change{Kind: store.KindDeployment, Account: "default", ID: "m"})
	b.Effort(&before, "ann", "low", true, true) // of a request that began before the change
	check("after a change", "{[] [low medium high xhigh max] []}")
	if len(b.Table.efforts) != 0 {
		t.Errorf("%d efforts are kept of a changed deployment", len(b.Table.efforts))
	}
}

// A rejection holds for an hour, for requests with tools or for those without. Until a second client has seen it, it
// concerns the first one alone.
func TestEffortRejections(t *testing.T) {
	b := newBench()
	b.d.Options.Efforts = `{"high":"high"}`
	check := func(what string, client string, tools, rejected bool) {
		t.Helper()
		if works, known := b.EffortWorks(&b.d, client, "high", tools); works || known != rejected {
			t.Errorf("%s: works %v, known %v", what, works, known)
		}
	}
	b.Effort(&b.d, "ann", "high", true, false)
	check("of the client", "ann", true, true)
	check("of the client, without tools", "ann", false, false)
	check("of another client", "bob", true, false)
	check("of any client", "", true, true)
	if got := fmt.Sprint(b.Efforts(&b.d, "bob"), b.Efforts(&b.d, "ann")); got != "{[] [high] []} {[] [] [high]}" {
		t.Errorf("known to bob and to ann: %s", got)
	}
	b.now = b.now.Add(30 * time.Minute)
	b.Effort(&b.d, "ann", "high", true, false) // a request that was under way
	check("seen twice by one client", "bob", true, false)
	b.Effort(&b.d, "bob", "high", true, false)
	check("seen by two clients", "eve", true, true)
	check("seen by two clients, without tools", "eve", false, false)
	b.Effort(&b.d, "ann", "high", true, false)
	check("seen again by the first", "eve", true, true)
	b.now = b.now.Add(time.Hour - 1)
	check("within the hour", "eve", true, true)
	b.now = b.now.Add(1)
	check("after an hour", "ann", true, false)
	b.Effort(&b.d, "eve", "high", true, false)
	check("what two have seen before", "ann", true, false)
	b.Effort(&b.d, "ann", "high", true, true)
	b.Effort(&b.d, "eve", "high", true, false)
	if works, known := b.EffortWorks(&b.d, "eve", "high", true); !works || !known {
		t.Error("an effort that has worked is rejected")
	}
}

func TestEffortsAreCheap(t *testing.T) {
	b := newBench()
	b.Effort(&b.d, "ann", "low", true, true)
	if n := testing.AllocsPerRun(100, func() {
		b.Effort(&b.d, "ann", "low", true, true)
		b.EffortWorks(&b.d, "ann", "low", true)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
