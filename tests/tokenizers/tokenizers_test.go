// Package tokenizers compares the gateway's counts of prompts with those of the tokenizers and chat templates of
// models.
package tokenizers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/tests/rig"
)

var models = []string{"qwen3", "gemma3", "deepseek_v3", "llama3", "gptoss"}

// numberOfPrompts are those of each model; beginnings are counted in addition.
const numberOfPrompts = 2000

// A tokenizer counts tokens as a model does.
type tokenizer struct {
	mu  sync.Mutex
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts the tokenizer of a model, which ends with the test.
func start(t *testing.T, model string) *tokenizer {
	t.Helper()
	var failure bytes.Buffer
	cmd := exec.Command("node", "count.mjs", model)
	cmd.Dir, cmd.Stderr = "node", &failure
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the tokenizer of %s: %v\n%s", model, err, failure.String()[max(0, failure.Len()-2000):])
		}
	})
	return &tokenizer{in: in, out: bufio.NewReader(out)}
}

// count returns the number of tokens of a prompt, 0 after a failure.
func (k *tokenizer) count(prompt any) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if json.NewEncoder(k.in).Encode(prompt) != nil {
		return 0
	}
	line, _ := k.out.ReadString('\n')
	n, _ := strconv.Atoi(strings.TrimSpace(line))
	return n
}

func install(t *testing.T) {
	t.Helper()
	if testing.Short() || os.Getenv("POSTERN_SKIP_NODE") == "1" {
		t.Skip("installs the tokenizers of models with npm, 600 MB")
	}
	if err := rig.NPM("node"); err != nil {
		t.Fatal(err)
	}
}

// No prompt that a model has room for is refused, and no whole one is called cut: without a count of its beginning, and
// with that of any beginning.
func TestSizes(t *testing.T) {
	install(t)
	all := prompts(t, numberOfPrompts)
	for _, model := range models {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			k := start(t, model)
			counter, nearest := tokens.NewCounter(), ratio{}
			for i, p := range all {
				c := tokens.NewCalibration(counter, nil)
				if begin := p.beginning(i); i%2 == 0 && len(begin.Messages) > 0 {
					nearest.check(t, c, begin, k.count(begin))
				}
				nearest.check(t, c, p, k.count(p))
			}
			t.Logf("the nearest: %.2f, %s", nearest.value, nearest.kind)
		})
	}
}

// A ratio of a model's count to the least that the gateway assumes, the smallest one.
type ratio struct {
	value float64
	kind  string
}

// check checks a prompt with n tokens, and learns that.
func (r *ratio) check(t *testing.T, c *tokens.Calibration, p prompt, n int) {
	t.Helper()
	const key, connector = "key_1", "con_1"
	registration, ours := tokens.Registration{Account: "default", Deployment: "m", Since: 1}, p.ours()
	size := c.Sizes(context.Background(), registration, key, ours, []string{connector})[0]
	name := fmt.Sprintf("%s, %d messages, known %d", p.kind, len(p.Messages), size.Known)
	if value := float64(n) / float64(size.Min()); r.kind == "" || value < r.value {
		*r = ratio{value, name}
	}
	if size.Min() > n {
		t.Errorf("%s: refused with a window of %d tokens: it has at least %d", name, n, size.Min())
	}
	if doubt := c.Learn(registration, connector, key, ours, n, true); doubt == tokens.Cut {
		t.Errorf("%s: %d tokens are called cut", name, n)
	}
}
