package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestList(t *testing.T) {
	var items []string
	for i := range 1000 {
		items = append(items, fmt.Sprintf("Model-%03d", i))
	}
	for _, tt := range []struct {
		query              string
		first              string
		shown, page, pages int
		prev, next         string
	}{
		{"", "Model-000", 50, 1, 20, "", "/console/x?page=2"},
		{"page=2", "Model-050", 50, 2, 20, "/console/x?page=1", "/console/x?page=3"},
		{"page=20", "Model-950", 50, 20, 20, "/console/x?page=19", ""},
		{"page=9999", "Model-950", 50, 20, 20, "/console/x?page=19", ""},
		{"page=-1", "Model-000", 50, 1, 20, "", "/console/x?page=2"},
		{"page=zzz", "Model-000", 50, 1, 20, "", "/console/x?page=2"},
		{"q=model+99", "Model-099", 19, 1, 1, "", ""},
		{"q=MODEL-1&page=2&show=revoked&junk=1", "Model-150", 50, 2, 2, "/console/x?page=1&q=MODEL-1&show=revoked", ""},
		{"q=none", "", 0, 1, 1, "", ""},
		{"q=%26evil%3D1", "", 0, 1, 1, "", ""},
	} {
		v := &visit{r: httptest.NewRequest(http.MethodGet, "/console/x?"+tt.query, nil)}
		l := list(v, columns[string]{name: "x", text: func(s string) string { return s }, kept: []string{"show"}}, items)
		if len(l.Items) != tt.shown || l.Page != tt.page || l.Pages != tt.pages || l.Prev != tt.prev || l.Next != tt.next {
			t.Errorf("%q: %d items, page %d of %d, %q, %q", tt.query, len(l.Items), l.Page, l.Pages, l.Prev, l.Next)
		}
		if tt.first != "" && l.Items[0] != tt.first {
			t.Errorf("%q begins with %s, want %s", tt.query, l.Items[0], tt.first)
		}
		if l.Total != 1000 {
			t.Errorf("%q: total %d", tt.query, l.Total)
		}
	}
}

// Code in messages is marked up, and nothing else in them is HTML.
func TestProse(t *testing.T) {
	for text, want := range map[string]string{
		"run `caddy reload` again":  "run <code>caddy reload</code> again",
		"`a` and `<b>`":             "<code>a</code> and <code>&lt;b&gt;</code>",
		"a ` alone":                 "a ` alone",
		"`a` and ` alone":           "<code>a</code> and ` alone",
		"<script>alert(1)</script>": "&lt;script&gt;alert(1)&lt;/script&gt;",
		"":                          "",
	} {
		if got := string(prose(text)); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}
