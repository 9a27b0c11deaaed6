package activity_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// Searches of the file take turns, and a search that waits too long fails.
func TestSearchesTakeTurns(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := open(t, path)
		l.Record(account, request(1))
		time.Sleep(11 * time.Second)
		leave := l.Search(t, "other")
		if _, err := l.Find(t.Context(), account, activity.Query{Limit: 1}); !errors.Is(err, store.ErrLimit) {
			t.Errorf("during another search: %v", err)
		}
		time.AfterFunc(time.Second, leave)
		began := time.Now()
		if got := find(t, l, activity.Query{Limit: 1}).Requests; len(got) != 1 || time.Since(began) != time.Second {
			t.Errorf("after another search: %v after %v", got, time.Since(began))
		}
		if got := find(t, l, activity.Query{Limit: 1}).Requests; len(got) != 1 {
			t.Errorf("after a search of one's own: %v", got)
		}
	})
}

// Of a caller, at most 64 searches wait, fewer if others search, and callers take turns whatever they look for. A
// client that has left and a query for no keys do not search.
func TestSearchesOfCallers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := open(t, path)
		l.Record(account, request(1))
		time.Sleep(11 * time.Second)
		var mu sync.Mutex
		order, refused, left := "", 0, 0
		search := func(ctx context.Context, n int, q activity.Query) {
			for range n {
				go func() {
					_, err := l.Find(ctx, account, q)
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err == nil:
						order += q.Caller
					case errors.Is(err, store.ErrLimit):
						refused++
					case errors.Is(err, context.Canceled):
						left++
					default:
						t.Error(err)
					}
				}()
				synctest.Wait()
			}
		}
		leave := l.Search(t, "other")
		for i := range 100 { // a member whose queries differ
			search(t.Context(), 1, activity.Query{Caller: "m", Keys: []string{"key_" + strconv.Itoa(i)}, Limit: 1})
		}
		search(t.Context(), 1, activity.Query{Caller: "a", Limit: 1}) // displaces one
		gone, cancel := context.WithCancel(t.Context())
		search(gone, 2, activity.Query{Caller: "g", Limit: 1})
		cancel()
		synctest.Wait()
		search(gone, 2, activity.Query{Caller: "g", Limit: 1})
		if refused != 39 || left != 4 || order != "" {
			t.Errorf("refused %d, left %d, served %q", refused, left, order)
		}
		search(t.Context(), 3, activity.Query{Caller: "n", Keys: []string{}, Limit: 1})
		if order != "nnn" {
			t.Errorf("queries for no keys waited: %q", order)
		}
		leave()
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		// The members' searches may note their end after the next one may have begun.
		if m := strings.Count(order, "m"); m != 61 || len(order) != len("nnn")+m+1 || strings.Index(order, "a") > 12 {
			t.Errorf("served in the order %q", order)
		}
	})
}

// What is in the place of the file is moved aside. If that fails, the log does not claim it.
func TestFolderInPlaceOfTheFile(t *testing.T) {
	t.Parallel()
	for name, taken := range map[string]bool{"free": false, "taken": true} {
		path := filepath.Join(t.TempDir(), "activity.db")
		folders := []string{path}
		if taken {
			folders = append(folders, path+".damaged")
		}
		for _, folder := range folders {
			must(t, os.MkdirAll(filepath.Join(folder, "x"), 0o700))
		}
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			l := newLog(t, activity.Options{
				Store: storetest.New(t), Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			time.Sleep(time.Second)
			l.Record(account, request(1))
			time.Sleep(time.Minute)
			synctest.Wait()
			info, err := os.Stat(path)
			if err != nil || info.IsDir() != taken || len(ids(l, account)) != 1 ||
				bytes.Contains(log.Bytes(), []byte("a new one is begun")) == taken {
				t.Errorf("%s: %v, %v\n%s", name, info, err, &log)
			}
		})
	}
}
