package store_test

import (
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// A judge is a chat model when it is set. It may be removed later. Models may judge each other.
func TestJudge(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	mustName(t, s, "a", "b also-b", "e")
	edit := func(name string, change func(*store.Deployment)) error {
		_, err := s.EditDeployment(t.Context(), account, name, func(d *store.Deployment) error {
			change(d)
			return nil
		})
		return err
	}
	set := func(judge string) error {
		return edit("a", func(d *store.Deployment) { d.Options.Safeguards = judge })
	}
	must(t, edit("e", func(d *store.Deployment) { d.Kind = store.EmbeddingsModel }))
	for _, wrong := range []string{"c", "also-b", "e"} {
		wantError(t, set(wrong), store.ErrInvalid, `"`+wrong+`" is not a chat model of the account`)
	}
	for _, judge := range []string{"self", "a", "b"} {
		must(t, set(judge))
	}
	if err := edit("b", func(d *store.Deployment) { d.Options.Safeguards = "a" }); err != nil {
		t.Errorf("models cannot judge each other: %v", err)
	}
	must(t, errOf(s.RemoveDeployment(t.Context(), account, "b")))
	if err := set("b"); err != nil {
		t.Errorf("the judge cannot stay: %v", err)
	}
}
