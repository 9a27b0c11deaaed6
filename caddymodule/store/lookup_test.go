package store_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

func lookups(b *testing.B) (s *store.Store, connector string) {
	s = storetest.New(b)
	c, _, err := s.CreateConnector(b.Context(), store.DefaultAccount, "c")
	must(b, err)
	for i := range 20 {
		must(b, errOf(s.SetDeployment(b.Context(),
			store.Deployment{
				Account: store.DefaultAccount, Name: fmt.Sprint("model/x-", i),
				Connectors: []string{c.ID},
			})))
	}
	return s, c.ID
}

func BenchmarkDeployment(b *testing.B) {
	s, _ := lookups(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := s.Deployment(store.DefaultAccount, "model/x-7"); !ok {
			b.Fatal("none")
		}
	}
}

func BenchmarkConnector(b *testing.B) {
	s, id := lookups(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := s.Connector(id); !ok {
			b.Fatal("none")
		}
	}
}

// BenchmarkOpen opens a store with 1,000 keys, and an empty one, and reports what the view takes.
func BenchmarkOpen(b *testing.B) {
	for _, keys := range []int{0, 1000} {
		b.Run(fmt.Sprint(keys, " keys"), func(b *testing.B) {
			path := tempStore(b)
			s := storetest.Open(b, path)
			for range keys {
				mustKey(b, s, "*")
			}
			must(b, s.Close())
			s = nil
			var before, after runtime.MemStats
			for b.Loop() {
				kv, err := store.OpenBolt(path, store.BoltOptions{})
				must(b, err)
				runtime.GC()
				runtime.ReadMemStats(&before)
				if s, err = store.New(kv, store.Options{}); err != nil {
					b.Fatal(err)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				must(b, s.Close())
				s = nil // not in the next figure
			}
			b.ReportMetric(float64(after.HeapAlloc)-float64(before.HeapAlloc), "heap-bytes")
		})
	}
}
