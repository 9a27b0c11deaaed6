package link

import (
	"slices"
	"testing"
)

func TestParseModels(t *testing.T) {
	for body, want := range map[string]ModelList{
		`{"data":[{"id":"b"},{"id":""},{"id":"a"}]}`: {IDs: []string{"b", "a"}},
		`{"data":null}`: {IDs: []string{}},
		`{"data":[{"id":"m","owned_by":"llamacpp"}]}`:                                  {IDs: []string{"m"}, Open: true},
		`{"data":[{"id":"m","owned_by":"llamacpp","status":{"value":"loaded"}}]}`:      {IDs: []string{"m"}},
		`{"data":[{"id":"m","owned_by":"llamacpp"},{"id":"n","owned_by":"llamacpp"}]}`: {IDs: []string{"m", "n"}},
	} {
		got, ok := ParseModels([]byte(body))
		if !ok || !slices.Equal(got.IDs, want.IDs) || got.IDs == nil || got.Open != want.Open {
			t.Errorf("%s: %+v, %v", body, got, ok)
		}
	}
	for _, body := range []string{``, `[]`, `{}`, `{"models":[]}`, `{"data":["a"]}`, `{"data":[{"id":"a"`} {
		if _, ok := ParseModels([]byte(body)); ok {
			t.Errorf("%s is taken for a list of models", body)
		}
	}
}
