package store_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/cputime"
	"github.com/postern-dev/postern/tests/rig/race"
)

// manyKeys is for how many keys the store is made.
const manyKeys = 1_000_000

// TestManyKeys measures a store with a million keys in a process of its own: in accounts of
// 100, one of 1,000 and one of 10,000, and then in one account.
func TestManyKeys(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	if race.Enabled {
		t.Skip("the race detector takes three times the memory; xcaddy.sh runs this without it")
	}
	accountOf := map[string]func(i int) string{
		"many accounts": func(i int) string {
			switch {
			case i < 1000:
				return "a1000"
			case i < 11_000:
				return "a10000"
			}
			return fmt.Sprintf("team-%d", i/100)
		},
		"one account": func(int) string { return store.DefaultAccount },
	}
	for name, account := range accountOf {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "gateway.db")
			fill(t, path, account)
			debug.FreeOSMemory()
			cmd, _, lines := startChild(t, "measure", path)
			got := make(map[string]float64)
			for line := range lines {
				what, value, _ := strings.Cut(line, ": ")
				got[what], _ = strconv.ParseFloat(value, 64)
				t.Logf("%s: %s", what, value)
			}
			must(t, cmd.Wait())
			for what, limit := range map[string]float64{
				"start, s": 10 * max(1, got["slowness"]), "create and remove, ms": 1, "list a1000, ms": 20, "peak memory, GB": 3,
			} {
				value, ok := got[what]
				if !ok && (what != "list a1000, ms" || name == "many accounts") || value > limit {
					t.Errorf("%s is %v, more than %v", what, value, limit)
				}
			}
		})
	}
}

const keyFormat = `{"v":1,"id":%q,"account":%q,"name":"notebook of Ann","scope":"*",` +
	`"created_at":"2026-01-02T03:04:05.678Z",` +
	`"last_used_at":null,"revoked_at":null,"created_by":{"user":"usr_00000000000000000000000000","name":"Ann"},` +
	`"hash":"%x"}`

// fill writes the keys to a new file.
func fill(t *testing.T, path string, accountOf func(i int) string) {
	t.Helper()
	kv, err := store.OpenBolt(path, store.BoltOptions{})
	must(t, err)
	store.NoSync(kv)
	accounts := make(map[string]bool)
	var ops []store.Op
	put := func(path, format string, args ...any) {
		ops = append(ops, store.Put(path, fmt.Appendf(nil, format, args...)))
		if len(ops) == store.MaxTxnOps {
			_, err := kv.Txn(t.Context(), store.Txn{Then: ops})
			if ops = ops[:0]; err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range manyKeys {
		account, id := accountOf(i), idOf(i)
		if !accounts[account] {
			accounts[account] = true
			put("accounts/"+account, `{"v":1,"id":%q,"name":%q,"created_at":"2026-01-01T00:00:00Z",`+
				`"limits":{"max_keys":1000000}}`, account, account)
		}
		put("keys/"+account+"/"+id, keyFormat, id, account, sha256.Sum256([]byte(secretOf(i))))
	}
	_, err = kv.Txn(t.Context(), store.Txn{Then: ops})
	must(t, errors.Join(err, kv.Close()))
}

func idOf(i int) string     { return fmt.Sprintf("key_%025d0", i) }
func secretOf(i int) string { return fmt.Sprintf("sk-svc-%043d", i) }

func init() { children["measure"] = measure }

// slowness is how many times as long as on a usual machine with nothing else to do the JSON of a
// record takes here and now.
func slowness() float64 {
	const usual = 4 * time.Microsecond
	record := fmt.Appendf(nil, keyFormat, idOf(1), "a1000", sha256.Sum256(nil))
	const calls = 50_000
	before := cputime.Used()
	for range calls {
		if json.Unmarshal(record, new(store.Key)) != nil {
			return 0
		}
	}
	return float64(cputime.Used()-before) / calls / float64(usual)
}

// measure opens the store of TestManyKeys and writes figures to the standard output.
func measure(path string) error {
	start, before := time.Now(), cputime.Used()
	kv, err := store.OpenBolt(path, store.BoltOptions{})
	if err != nil {
		return err
	}
	s, err := store.New(kv, store.Options{})
	if err != nil {
		return err
	}
	wall, used := time.Since(start), cputime.Used()-before
	fmt.Printf("start by the clock, s: %.2f\n", wall.Seconds())
	fmt.Printf("start, s: %.2f\n", min(wall, used).Seconds()) // other processes may have the machine
	fmt.Printf("slowness: %.2f\n", slowness())
	if k, ok := s.FindKey(secretOf(manyKeys / 2)); !ok || k.Key().RevokedAt != nil {
		return errors.New("a key is not there")
	}
	for _, account := range []string{"a1000", "a10000"} {
		if n := len(s.Keys(account)); n > 0 {
			fmt.Printf("list %s, ms: %.3f\n", account, median(21, func() { s.Keys(account) }))
		}
	}
	store.NoSync(kv) // the time of the disk is not the view's
	account := store.DefaultAccount
	if s.CountKeys(account)[store.KeyValid] == manyKeys { // which is the limit
		if _, err := s.RemoveKey(context.Background(), account, idOf(0)); err != nil {
			return err
		}
	}
	fmt.Printf("create and remove, ms: %.3f\n", median(201, func() {
		k, _, failed := s.CreateKey(context.Background(), account, store.KeyFields{Name: rand.Text(), Scope: "*"})
		if failed == nil {
			_, failed = s.RemoveKey(context.Background(), account, k.ID)
		}
		err = errors.Join(err, failed)
	}))
	if err != nil {
		return err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	debug.FreeOSMemory()
	after, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	fmt.Printf("peak memory, GB: %.2f\n", kilobytes(status, "VmHWM:")/1e6)
	fmt.Printf("memory after a collection, GB: %.2f\n", kilobytes(after, "RssAnon:")/1e6)
	return s.Close()
}

// kilobytes returns a value of /proc/self/status.
func kilobytes(status []byte, name string) float64 {
	_, rest, _ := bytes.Cut(status, []byte(name))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseFloat(string(fields[0]), 64)
	return n
}

// median returns the median duration of calls in milliseconds.
func median(calls int, f func()) float64 {
	var all []time.Duration
	for range calls {
		start := time.Now()
		f()
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return float64(all[calls/2].Microseconds()) / 1000
}
