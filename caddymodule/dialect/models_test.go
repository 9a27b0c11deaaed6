package dialect

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"
)

var modelTime = time.Date(2023, 11, 14, 23, 13, 20, 999, time.FixedZone("", 3600))

func TestModelsPaging(t *testing.T) {
	var models []Model
	for _, id := range []string{"e", "d", "c", "b", "a"} {
		models = append(models, Model{ID: id, Created: modelTime})
	}
	for _, tt := range []struct{ query, want string }{
		{"", "abcde"},
		{"limit=2", "ab+"},
		{"limit=1000", "abcde"},
		{"limit=5", "abcde"},
		{"limit=2&after_id=b", "cd+"},
		{"limit=2&after_id=c", "de"},
		{"after_id=bb", "cde"},
		{"after_id=e", ""},
		{"limit=2&before_id=d", "bc+"},
		{"limit=2&before_id=c", "ab"},
		{"before_id=a", ""},
		{"before_id=zz", "abcde"},
		{"unknown=1", "abcde"},
		{"limit=0", "limit"},
		{"limit=-1", "limit"},
		{"limit=1001", "limit"},
		{"limit=x", "limit"},
		{"after_id=a&before_id=e", "bcd"},
		{"after_id=a&before_id=e&limit=2", "cd+"},
		{"after_id=a&before_id=c&limit=2", "b"},
		{"after_id=a&before_id=b", ""},
		{"after_id=d&before_id=b", ""},
		{"after_id=zz&before_id=zzz", ""},
	} {
		query, _ := url.ParseQuery(tt.query)
		if got := page1(t, Messages, models, query); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.query, got, tt.want)
		}
		if got := page1(t, Chat, models, query); got != "abcde" {
			t.Errorf("%q in another dialect: got %q", tt.query, got)
		}
	}
}

// page1 returns the ids of a page, with "+" if there are more, or the invalid parameter.
func page1(t *testing.T, d Dialect, models []Model, query url.Values) string {
	t.Helper()
	body, derr := ModelsList(d, models, query)
	if derr != nil {
		return derr.Param
	}
	var list struct {
		Data    []struct{ ID string }
		HasMore bool    `json:"has_more"`
		First   *string `json:"first_id"`
		Last    *string `json:"last_id"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	var ids strings.Builder
	for _, m := range list.Data {
		ids.WriteString(m.ID)
	}
	if s := ids.String(); s != "" && (*list.First != s[:1] || *list.Last != s[len(s)-1:]) {
		t.Errorf("first %s, last %s of %s", *list.First, *list.Last, s)
	}
	if list.HasMore {
		ids.WriteByte('+')
	}
	return ids.String()
}
