package store_test

import (
	"fmt"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

func lookups(b *testing.B) (s *store.Store, connector string) {
	s = storetest.New(b)
	c, _, err := s.CreateConnector(b.Context(), store.DefaultAccount, "c")
	if err != nil {
		b.Fatal(err)
	}
	for i := range 20 {
		if _, err := s.SetDeployment(b.Context(), store.Deployment{Account: store.DefaultAccount, Name: fmt.Sprint("model/x-", i), Connectors: []string{c.ID}}); err != nil {
			b.Fatal(err)
		}
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
