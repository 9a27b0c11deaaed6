package dialect

import (
	"slices"
	"testing"
)

func TestToolSlots(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries []toolEntry // id, name, index, args
		want    []int
	}{
		{"by index", []toolEntry{{"a", "f", 0, "{"}, {"", "", 0, "}"}, {"b", "g", 1, "{"}, {"", "", 0, "x"}, {"", "", 1, "}"}}, []int{0, 0, 1, 0, 1}},
		{"index 0 for all, whole calls", []toolEntry{{"a", "f", 0, "{}"}, {"b", "f", 0, "{}"}, {"c", "g", 0, "{}"}}, []int{0, 1, 2}},
		{"a reused index goes on with its latest call", []toolEntry{{"a", "f", 0, "{}"}, {"b", "f", 0, "{"}, {"", "", 0, "}"}}, []int{0, 1, 1}},
		{"known id on a wrong index", []toolEntry{{"a", "f", 0, "{"}, {"b", "g", 1, "{"}, {"a", "", 1, "}"}}, []int{0, 1, 0}},
		{"id with each fragment", []toolEntry{{"a", "f", 0, "{"}, {"a", "f", 0, "}"}}, []int{0, 0}},
		{"id comes late", []toolEntry{{"", "f", 0, ""}, {"a", "f", 0, "{}"}, {"a", "", -1, "x"}}, []int{0, 0, 0}},
		{"a new id without a name stays", []toolEntry{{"a", "f", 0, "{"}, {"b", "", 0, "}"}}, []int{0, 0}},
		{"no index, ids", []toolEntry{{"a", "f", -1, "{"}, {"", "", -1, "}"}, {"b", "f", -1, "{}"}}, []int{0, 0, 1}},
		{"no index, no ids, complete arguments", []toolEntry{{"", "f", -1, `{"a":"}\""}`}, {"", "f", -1, "{}"}}, []int{0, 1}},
		{"no index, no ids, incomplete arguments", []toolEntry{{"", "f", -1, `{"a":"}\"`}, {"", "f", -1, `"}`}, {"", "g", -1, ""}}, []int{0, 0, 1}},
		{"no index, id late", []toolEntry{{"", "f", -1, "{"}, {"a", "", -1, "}"}}, []int{0, 0}},
		{"nothing known", []toolEntry{{"", "", -1, ""}, {"", "", -1, ""}}, []int{0, 0}},
	} {
		var slots toolSlots
		var got []int
		for _, e := range tt.entries {
			got = append(got, slots.place(e))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
