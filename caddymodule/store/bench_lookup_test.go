package store_test

import (
	"fmt"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

func lookups(b *testing.B) (*store.Store, string, string) {
	s := storetest.New(b)
	var secret string
	for i := range 50 {
		_, sec, err := s.CreateKey(b.Context(), store.DefaultAccount, fmt.Sprint("k", i), "*")
		if err != nil {
			b.Fatal(err)
		}
		secret = sec
	}
	c, _, err := s.CreateConnector(b.Context(), store.DefaultAccount, "c")
	if err != nil {
		b.Fatal(err)
	}
	for i := range 20 {
		if _, err := s.SetDeployment(b.Context(), store.Deployment{Account: store.DefaultAccount, Name: fmt.Sprint("model/x-", i), Connectors: []string{c.ID}}); err != nil {
			b.Fatal(err)
		}
	}
	return s, secret, c.ID
}

func BenchmarkKeyAllows(b *testing.B) {
	s, secret, _ := lookups(b)
	b.ReportAllocs()
	for b.Loop() {
		k, ok := s.FindKey(secret)
		if !ok || k.Revoked() || !k.Allows("model/x-7") {
			b.Fatal("no key")
		}
	}
}

func BenchmarkTouch(b *testing.B) {
	s, secret, _ := lookups(b)
	k, _ := s.FindKey(secret)
	b.ReportAllocs()
	for b.Loop() {
		s.Touch(k)
	}
}

func BenchmarkDeployment(b *testing.B) {
	s, _, _ := lookups(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := s.Deployment(store.DefaultAccount, "model/x-7"); !ok {
			b.Fatal("none")
		}
	}
}

func BenchmarkConnector(b *testing.B) {
	s, _, id := lookups(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := s.Connector(id); !ok {
			b.Fatal("none")
		}
	}
}
