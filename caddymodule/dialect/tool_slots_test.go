package dialect

import (
	"slices"
	"testing"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// fragment is an element of tool_calls with decoded arguments.
type fragment struct {
	id, name string
	index    int64
	args     string
}

func TestToolSlots(t *testing.T) {
	for _, tt := range []struct {
		name    string
		entries []fragment // id, name, index, args
		want    []int
	}{
		{"by index", []fragment{
			{"a", "f", 0, "{"},
			{"", "", 0, "}"},
			{"b", "g", 1, "{"},
			{"", "", 0, "x"},
			{"", "", 1, "}"},
		}, []int{0, 0, 1, 0, 1}},
		{
			"index 0 for all, whole calls",
			[]fragment{{"a", "f", 0, "{}"}, {"b", "f", 0, "{}"}, {"c", "g", 0, "{}"}},
			[]int{0, 1, 2},
		},
		{
			"a reused index goes on with its latest call",
			[]fragment{{"a", "f", 0, "{}"}, {"b", "f", 0, "{"}, {"", "", 0, "}"}},
			[]int{0, 1, 1},
		},
		{"known id on a wrong index", []fragment{{"a", "f", 0, "{"}, {"b", "g", 1, "{"}, {"a", "", 1, "}"}}, []int{0, 1, 0}},
		{"id with each fragment", []fragment{{"a", "f", 0, "{"}, {"a", "f", 0, "}"}}, []int{0, 0}},
		{"id comes late", []fragment{{"", "f", 0, ""}, {"a", "f", 0, "{}"}, {"a", "", -1, "x"}}, []int{0, 0, 0}},
		{"a new id without a name stays", []fragment{{"a", "f", 0, "{"}, {"b", "", 0, "}"}}, []int{0, 0}},
		{"no index, ids", []fragment{{"a", "f", -1, "{"}, {"", "", -1, "}"}, {"b", "f", -1, "{}"}}, []int{0, 0, 1}},
		{"no index, no ids, complete arguments", []fragment{{"", "f", -1, `{"a":"}\""}`}, {"", "f", -1, "{}"}}, []int{0, 1}},
		{
			"no index, no ids, incomplete arguments",
			[]fragment{{"", "f", -1, `{"a":"}\"`}, {"", "f", -1, `"}`}, {"", "g", -1, ""}},
			[]int{0, 0, 1},
		},
		{"no index, id late", []fragment{{"", "f", -1, "{"}, {"a", "", -1, "}"}}, []int{0, 0}},
		{"nothing known", []fragment{{"", "", -1, ""}, {"", "", -1, ""}}, []int{0, 0}},
	} {
		var slots toolSlots
		var got []int
		for _, e := range tt.entries {
			got = append(got, slots.assign(&toolEntry{
				id: e.id, name: e.name, index: e.index,
				raw: jsonscan.AppendQuoted(nil, e.args),
			}))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// The end of arguments is found wherever a fragment is cut. Brackets in strings do not count.
func TestArgumentsEnd(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		``: false, ` `: false, `{`: false, `{}`: true, "{}\n": true, `{"a":"}`: false, `{"a":"}\"}"`: false,
		`{"a":"\\"}`:         true,
		`{"a":{"b":[{},[]]}`: false, `{"a":{"b":[{},[]]}}`: true, `[`: false, `[1]`: true, `"a`: false, `"a\"`: false,
		`"a\""`: true, `null`: false, `5`: false, `}`: false, `{"a":"[{"}`: true, `{"a" 1}`: true,
	} {
		for cut := range len(text) + 1 {
			var a argumentsEnd
			a.add(text[:cut])
			if a.add(text[cut:]); a.reached != want {
				t.Errorf("%q cut at %d: %v", text, cut, a.reached)
			}
		}
	}
}
