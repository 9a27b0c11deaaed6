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

// A client or a model server can make its lists and texts arbitrarily long. Each may take time in
// proportion to its elements, and memory in proportion to its bytes. There is a row for each of
// them, which TestWorkIsBounded measures.

// boundedRow is a list or a text.
type boundedRow struct {
	name    string
	input   func(n int) string               // with n elements, or n pieces of text
	work    func(input []byte) (any, *Error) // processes the input; returns the result
	maximum int                              // number of elements; 0: as many as take long enough
	minimum int                              // number of elements, if fewer are valid
	fails   string                           // part of the error; "": no error
}

// Limits of what is measured.
const (
	timeFactor       = 1.5 // per factor of elements
	memoryFactor     = 11  // bytes per byte of the input: lists and maps grow in steps, so up to 10.5 are retained
	memorySlack      = 2 << 20
	longEnough       = 2 * time.Millisecond
	fewElements      = 256
	measuredElements = maxElements/4 - 1000 // so that 4 times as many are allowed, with the rest of the request
)

func TestWorkIsBounded(t *testing.T) {
	if race.Enabled {
		t.Skip("the overhead of the race detector hides a search of all earlier elements")
	}
	// The cost of garbage collection depends on the rest of the heap.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(512 << 20))
	for _, rows := range [][]boundedRow{
		messagesRows, historyRows, responsesRows, chatRows, parameterRows, textRows, countedRows, answerRows, streamRows,
		saidRows, formRows,
	} {
		for _, row := range rows {
			t.Run(strings.ReplaceAll(row.name, " ", "_"), func(t *testing.T) {
				n, times := row.enough(t), 16
				if row.minimum != 0 || row.fails != "" { // with fewer, the result is another one
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
	limit := r.maximum
	if limit == 0 {
		limit = measuredElements
	}
	for n := min(max(r.minimum, fewElements), limit); ; {
		input := []byte(r.input(n))
		d, _ := r.run(t, input)
		again, _ := r.run(t, input)
		d = min(d, again)
		if d >= longEnough || n == limit {
			return n
		}
		n = min(n*int(min(longEnough/max(d, 1)+1, 32)), limit)
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
		t.Fatalf("no error with %q", r.fails)
	case err != nil && (r.fails == "" || !strings.Contains(err.Message, r.fails)):
		t.Fatalf("%d bytes: %s", len(input), err.Message)
	}
	return d, after.TotalAlloc - before.TotalAlloc
}

// checkTime compares the times of a small input and of one that is times as long. It takes the
// shortest of several runs, because disturbances only add time. It returns the bytes that the large
// one allocates.
func (r *boundedRow) checkTime(t *testing.T, small, large []byte, times int) uint64 {
	t.Helper()
	const attempts = 40
	shortest, _ := r.run(t, small)
	shortestLarge, allocated := r.run(t, large)
	for i := 0; float64(shortestLarge) >= timeFactor*float64(times)*float64(shortest); i++ {
		if i == attempts {
			t.Errorf("%d bytes take %v, %d take %v", len(small), shortest, len(large), shortestLarge)
			break
		}
		runtime.GC() // so that memory is used again: fresh pages cost time
		d, _ := r.run(t, small)
		largeTime, _ := r.run(t, large)
		shortest, shortestLarge = min(shortest, d), min(shortestLarge, largeTime)
	}
	return allocated
}

// checkMemory compares the memory that an input retains with its size. It takes the minimum of
// several runs, because uncollected garbage only adds to it. It does not measure if few bytes were
// allocated.
func (r *boundedRow) checkMemory(t *testing.T, input []byte, allocated uint64) {
	t.Helper()
	const attempts = 10
	limit := uint64(memoryFactor*len(input) + memorySlack)
	retained := allocated
	for i := 0; i < attempts && retained > limit; i++ {
		retained = min(retained, r.retained(input))
	}
	if retained > limit {
		t.Errorf("%d bytes retain up to %d bytes, %.1f times as many", len(input), retained,
			float64(retained)/float64(len(input)))
	}
}

// retained returns the approximate maximum size of the heap during a run, in bytes. Garbage is
// collected continuously meanwhile.
func (r *boundedRow) retained(input []byte) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(2))
	runtime.GC()
	heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}} // read without stopping the world
	metrics.Read(heap)
	base := heap[0].Value.Uint64()
	peak := base
	stop := make(chan struct{})
	var g sync.WaitGroup
	g.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				metrics.Read(heap)
				peak = max(peak, heap[0].Value.Uint64())
				runtime.Gosched()
			}
		}
	})
	kept, _ := r.work(input)
	close(stop)
	g.Wait()
	runtime.KeepAlive(kept)
	runtime.KeepAlive(input)
	return peak - min(base, peak)
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

// same returns a function for equal elements.
func same(text string) func(int) string { return func(int) string { return text } }

// numbered returns a function for elements with their number in place of each #.
func numbered(text string) func(int) string {
	return func(i int) string { return strings.ReplaceAll(text, "#", fmt.Sprint(i)) }
}

// decoding reads a request, writes the upstream's body, and hashes the prompt.
func decoding(op Operation) func([]byte) (any, *Error) {
	return func(body []byte) (any, *Error) {
		c, err := Decode(op, body, testEnv())
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, c.Body("up"))
		p := c.Prompt()
		tokens.NewCalibration(nil, nil).Learn(tokens.Registration{}, "con_1", "key", p, 1, false)
		return []any{c, p}, nil
	}
}

// counting reads a request and counts the tokens of its prompt.
func counting(op Operation) func([]byte) (any, *Error) {
	return func(body []byte) (any, *Error) {
		c, err := Decode(op, body, testEnv())
		if err != nil {
			return nil, err
		}
		return tokens.NewCounter().Estimate("key", c.Prompt()), nil
	}
}
