package tests

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// A prefixCache is the cache of a model server. Of each prompt, the server reads only the part after the
// longest prefix that it has cached.
type prefixCache struct {
	mu     sync.Mutex
	known  [][]byte
	misses int // prompts without a cached prefix
}

// unread adds a prompt and returns the number of its bytes that were not cached.
func (c *prefixCache) unread(prompt []byte) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	longest := 0
	for _, k := range c.known {
		if len(k) > longest && bytes.HasPrefix(prompt, k) {
			longest = len(k)
		}
	}
	if longest == 0 {
		c.misses++
	}
	c.known = append(c.known, prompt)
	return len(prompt) - longest
}

// conversations plays conversations with a deployment of two connectors, turn by turn. It returns the number
// of prompts that the model servers had to read from the beginning, and the mean time to an answer, without
// first turns.
func conversations(t *testing.T, affinity string) (talks, misses int, mean time.Duration) {
	const (
		turns       = 6
		lineBytes   = 20 << 10
		readingRate = 1 << 20 // bytes of a prompt per second
	)
	talks = 5 // odd: without an affinity, connectors alternate
	p := newPair(t, harness.StartInProcess(t, inprocess.Options{}))
	p.Manage(t, http.MethodPut, "/deployments/m", map[string]any{
		"connectors": []string{"a", "b"}, "options": map[string]any{"affinity": affinity},
	}, nil)
	var caches [2]prefixCache
	for i, u := range p.ups {
		u.Handle("m", func(x *upstream.Exchange) {
			_, messages, _ := bytes.Cut(x.Request.Body, []byte(`"messages":[`))
			unread := caches[i].unread(bytes.TrimRight(messages, "]}"))
			time.Sleep(time.Duration(unread) * time.Second / readingRate)
			upstream.Echo(x)
		})
	}
	history := make([]string, talks)
	for turn := range turns {
		for i := range history {
			history[i] += fmt.Sprintf(`{"role":"user","content":"talk %d, line %d %s"}`, i, turn, strings.Repeat("x", lineBytes))
			start := time.Now()
			if a := p.Post(t, `{"model":"m","messages":[`+history[i]+"]}"); a.Status != 200 {
				t.Fatalf("status %d, %s", a.Status, a.Body)
			}
			if turn > 0 {
				mean += time.Since(start)
			}
			history[i] += ","
		}
	}
	return talks, caches[0].misses + caches[1].misses, mean / time.Duration(talks*(turns-1))
}

// The turns of a conversation find its prompt in the cache of the model server. Without an
// affinity, both servers read it.
func TestAffinity(t *testing.T) {
	t.Parallel()
	talks, misses, with := conversations(t, "conversation")
	if misses != talks {
		t.Errorf("%d prompts were read from the beginning, for %d conversations", misses, talks)
	}
	if _, misses, _ = conversations(t, "key"); misses != talks {
		t.Errorf("with the key: %d prompts were read from the beginning", misses)
	}
	_, misses, without := conversations(t, "off")
	if misses <= talks {
		t.Errorf("without an affinity, only %d prompts were read from the beginning", misses)
	}
	t.Logf("time to the answer of a later turn: %v with affinity, %v without", with, without)
}
