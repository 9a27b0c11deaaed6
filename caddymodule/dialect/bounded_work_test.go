package dialect

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/tests/rig/cputime"
	"github.com/postern-dev/postern/tests/rig/race"
)

// Whatever a client or a model server can make long costs time in proportion
// to it, and memory in proportion to its bytes. boundedRows has a row for each
// such list and text; TestWorkIsBounded measures them.

// boundedRow is a list or a text.
type boundedRow struct {
	name  string
	input func(n int) string               // with n elements, or n pieces of text
	work  func(input []byte) (any, *Error) // what is done with it, and what stays of that
	most  int                              // elements; 0: as many as take long enough
	least int                              // elements, if fewer are no fault
	fails string                           // what the error must say; "": there is none
}

// Limits of what is measured.
const (
	timeFactor   = 1.5 // for each time the elements
	memoryFactor = 11  // bytes for each of the input: lists and maps grow in steps, so up to 10.5 are held at some sizes
	memorySlack  = 2 << 20
	longEnough   = 2 * time.Millisecond
	fewElements  = 256
	mostElements = maxElements/4 - 1000 // so that 4 times as many are allowed, with all that is around
)

func TestWorkIsBounded(t *testing.T) {
	if race.Enabled {
		t.Skip("what the race detector adds hides a search of all earlier elements")
	}
	// The collection of garbage costs by what else the process holds.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(512 << 20))
	for _, rows := range [][]boundedRow{messagesRows, responsesRows, chatRows, textRows, answerRows, streamRows} {
		for _, row := range rows {
			t.Run(strings.ReplaceAll(row.name, " ", "_"), func(t *testing.T) {
				n, times := row.enough(t), 16
				if row.least != 0 || row.fails != "" { // fewer would be something else
					times = 4
				}
				large := []byte(row.input(4 * n))
				allocated := row.checkTime(t, []byte(row.input(4*n/times)), large, times)
				row.checkMemory(t, large, allocated)
			})
		}
	}
}

// enough returns a number of elements that take long enough to be measured.
func (r *boundedRow) enough(t *testing.T) int {
	most := r.most
	if most == 0 {
		most = mostElements
	}
	for n := min(max(r.least, fewElements), most); ; {
		input := []byte(r.input(n))
		d, _ := r.run(t, input)
		again, _ := r.run(t, input)
		d = min(d, again)
		if d >= longEnough || n == most {
			return n
		}
		n = min(n*int(min(longEnough/max(d, 1)+1, 32)), most)
	}
}

// run runs a row once. It returns its time and the bytes that it allocates.
func (r *boundedRow) run(t *testing.T, input []byte) (time.Duration, uint64) {
	t.Helper()
	before, after := new(runtime.MemStats), new(runtime.MemStats)
	runtime.ReadMemStats(before)
	start := cputime.Used()
	_, err := r.work(input)
	d := cputime.Used() - start
	runtime.ReadMemStats(after)
	switch {
	case err == nil && r.fails != "":
		t.Fatalf("no error that says %q", r.fails)
	case err != nil && (r.fails == "" || !strings.Contains(err.Message, r.fails)):
		t.Fatalf("%d bytes: %s", len(input), err.Message)
	}
	return d, after.TotalAlloc - before.TotalAlloc
}

// checkTime compares the time of some elements and of some times as many, each the
// shortest of several: whatever disturbs only adds to them. It returns the bytes that
// the latter allocate.
func (r *boundedRow) checkTime(t *testing.T, small, large []byte, times int) uint64 {
	t.Helper()
	const attempts = 40
	least, _ := r.run(t, small)
	leastOfLarge, allocated := r.run(t, large)
	for i := 0; float64(leastOfLarge) >= timeFactor*float64(times)*float64(least); i++ {
		if i == attempts {
			t.Errorf("%d bytes take %v, %d take %v", len(small), least, len(large), leastOfLarge)
			break
		}
		runtime.GC() // so that memory is used again: fresh pages cost time
		d, _ := r.run(t, small)
		ofLarge, _ := r.run(t, large)
		least, leastOfLarge = min(least, d), min(leastOfLarge, ofLarge)
	}
	return allocated
}

// checkMemory compares what an input holds of the heap with its bytes: the least of
// several times, as garbage that waits for its collection only adds to it. It
// needs no measuring if all that was allocated, held or not, is little.
func (r *boundedRow) checkMemory(t *testing.T, input []byte, allocated uint64) {
	t.Helper()
	const attempts = 10
	limit := uint64(memoryFactor*len(input) + memorySlack)
	held := allocated
	for i := 0; i < attempts && held > limit; i++ {
		held = min(held, r.held(input))
	}
	if held > limit {
		t.Errorf("%d bytes hold up to %d bytes, %.1f times as many", len(input), held, float64(held)/float64(len(input)))
	}
}

// held is the most that a run of the row holds of the heap, in bytes, about:
// the garbage is collected all the time meanwhile.
func (r *boundedRow) held(input []byte) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(2))
	runtime.GC()
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}} // read without stopping the world
	metrics.Read(heap)
	base := heap[0].Value.Uint64()
	most := base
	stop := make(chan struct{})
	var g sync.WaitGroup
	g.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				metrics.Read(heap)
				most = max(most, heap[0].Value.Uint64())
				runtime.Gosched()
			}
		}
	})
	kept, _ := r.work(input)
	close(stop)
	g.Wait()
	runtime.KeepAlive(kept)
	runtime.KeepAlive(input)
	return most - min(base, most)
}

// listOf is a text with n elements and commas between them.
func listOf(head string, element func(i int) string, tail string) func(n int) string {
	return func(n int) string {
		var b strings.Builder
		b.WriteString(head)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(element(i))
		}
		b.WriteString(tail)
		return b.String()
	}
}

// same is an element that is always the same, numbered one with its number in
// place of each #.
func same(text string) func(int) string { return func(int) string { return text } }

func numbered(text string) func(int) string {
	return func(i int) string { return strings.ReplaceAll(text, "#", fmt.Sprint(i)) }
}

// decoding reads a request, writes what goes up, and hashes its prompt as
// counting does.
func decoding(op Operation) func([]byte) (any, *Error) {
	return func(body []byte) (any, *Error) {
		c, err := Decode(op, body, testEnv())
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, c.Body("up"))
		p := c.Prompt()
		tokens.NewCalibration(nil, nil).LearnCount(tokens.Registration{}, "key", p, 1)
		return []any{c, p}, nil
	}
}

// counting is decoding that counts the prompt's tokens too.
func counting(op Operation) func([]byte) (any, *Error) {
	return func(body []byte) (any, *Error) {
		c, err := Decode(op, body, testEnv())
		if err != nil {
			return nil, err
		}
		return tokens.NewCounter().Estimate("key", c.Prompt()), nil
	}
}
