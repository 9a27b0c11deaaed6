package console

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// pageSize is how many rows a list shows at once.
const pageSize = 50

// columns describes a list: how the URL of its page searches, filters and sorts it.
type columns[T any] struct {
	name    string           // of the tab; also its path
	text    func(T) string   // a search finds its words; nil: the items are those found
	title   func(T) string   // the item with the searched title comes first; needs orders
	orders  []order[T]       // the first is the default, and orders items that are equal in another one
	filters []valueFilter[T] // by values of the items
	selects []selection      // filters that the items have passed
	kept    []string         // other parameters of the page
}

// order is a column to sort by.
type order[T any] struct {
	name    string // in the URL, after "-" for the other direction
	down    bool   // the largest first
	compare func(a, b T) int
}

// by compares items by a value.
func by[T any, V cmp.Ordered](of func(T) V) func(a, b T) int {
	return func(a, b T) int { return cmp.Compare(of(a), of(b)) }
}

// byText compares items by a text, ignoring case.
func byText[T any](of func(T) string) func(a, b T) int {
	return by(func(item T) string { return strings.ToLower(of(item)) })
}

// seconds1970 returns a time as a value for [by]; none for nil.
func seconds1970(t *time.Time, none int64) int64 {
	if t == nil {
		return none
	}
	return t.Unix()
}

// valueFilter selects the items with a value.
type valueFilter[T any] struct {
	name, label string
	values      func(T) []string // of an item
}

// selection is a filter of a page: a parameter of the URL with its values.
type selection struct {
	Name, Label, Value string
	Options            []named
}

// listing is one page of a list, with links to the others.
type listing[T any] struct {
	Name     string // of the tab; also its path
	Items    []T
	Query    string // the search
	Selects  []selection
	Kept     []parameter // other parameters of the page, which the form keeps
	Filtered bool        // by the search or a filter
	Total    int         // before that
	Matching int
	Page     int // from 1
	Pages    int
	Prev     string // URL, "" if there is none
	Next     string
	links    url.Values // the parameters of all links
	heads    map[string]head
}

// parameter is a parameter of a page, and its value.
type parameter struct{ Name, Value string }

// head is the head of a column.
type head struct {
	Title, Class string
	URL          string // of the page sorted by it, "" if it cannot be
	Sorted       string // aria-sort
}

// Head returns the head of a column.
func (l listing[T]) Head(order, title, class string) head {
	h := l.heads[order]
	h.Title, h.Class = title, class
	return h
}

// First and Last are the numbers of the shown items among the matching ones, from 1.
func (l listing[T]) First() int { return (l.Page-1)*pageSize + 1 }
func (l listing[T]) Last() int  { return (l.Page-1)*pageSize + len(l.Items) }

// list filters and sorts items by the parameters of the page and returns the requested page. All words of q must be in
// the text of an item, ignoring case. A page number past the end is the last page: rows may have been removed in the
// meantime.
func list[T any](v *visit, r columns[T], items []T) listing[T] {
	query := v.r.URL.Query()
	l := listing[T]{
		Name: r.name, Items: slices.Clone(items), Query: strings.TrimSpace(query.Get("q")), Selects: slices.Clone(r.selects),
		Total: len(items), Page: 1, links: make(url.Values), heads: make(map[string]head),
	}
	for _, name := range r.kept {
		if value := query.Get(name); value != "" {
			l.Kept = append(l.Kept, parameter{name, value})
		}
	}
	for _, f := range r.filters {
		l.filter(f, items, query.Get(f.name))
	}
	for word := range strings.FieldsSeq(strings.ToLower(l.Query)) {
		l.Items = slices.DeleteFunc(l.Items, func(item T) bool {
			return r.text != nil && !strings.Contains(strings.ToLower(r.text(item)), word)
		})
	}
	for _, s := range append(l.Selects, selection{Name: "q", Value: l.Query}) {
		if s.Value != "" {
			l.links.Set(s.Name, s.Value)
			l.Filtered = true
		}
	}
	for _, k := range l.Kept {
		l.links.Set(k.Name, k.Value)
	}
	l.sort(r, query.Get("sort"))
	l.Matching = len(l.Items)
	l.Pages = max(1, (l.Matching+pageSize-1)/pageSize)
	if n, err := strconv.Atoi(query.Get("page")); err == nil {
		l.Page = min(max(n, 1), l.Pages)
	}
	l.Items = l.Items[(l.Page-1)*pageSize : min(l.Page*pageSize, l.Matching)]
	if l.Page > 1 {
		l.Prev = l.url("page", strconv.Itoa(l.Page-1))
	}
	if l.Page < l.Pages {
		l.Next = l.url("page", strconv.Itoa(l.Page+1))
	}
	return l
}

// filter selects the items with a value, if it is not empty. The form offers the values of all items.
func (l *listing[T]) filter(f valueFilter[T], all []T, value string) {
	values := map[string]bool{}
	for _, item := range all {
		for _, has := range f.values(item) {
			values[has] = true
		}
	}
	delete(values, "")
	if value != "" {
		values[value] = true // may be of an old link
		l.Items = slices.DeleteFunc(l.Items, func(item T) bool { return !slices.Contains(f.values(item), value) })
	} else if len(values) < 2 {
		return
	}
	s := selection{Name: f.name, Label: f.label, Value: value}
	for _, has := range slices.SortedFunc(maps.Keys(values), byText(func(has string) string { return has })) {
		s.Options = append(s.Options, named{has, has})
	}
	l.Selects = append(l.Selects, s)
}

// sort sorts the items. Those whose title is or has the searched text come first; if a column is chosen, only the former.
func (l *listing[T]) sort(r columns[T], chosen string) {
	if len(r.orders) == 0 {
		return
	}
	name, back := strings.CutPrefix(chosen, "-")
	at := slices.IndexFunc(r.orders, func(o order[T]) bool { return o.name == name })
	if at < 0 {
		at, back, chosen = 0, false, ""
	}
	if chosen != "" {
		l.links.Set("sort", chosen)
		l.Kept = append(l.Kept, parameter{"sort", chosen})
	}
	for i, o := range r.orders {
		h := head{URL: l.url("sort", o.name)}
		if i == at {
			h.Sorted = map[bool]string{true: "descending", false: "ascending"}[o.down != back]
			if !back {
				h.URL = l.url("sort", "-"+o.name)
			}
		}
		l.heads[o.name] = h
	}
	compare := func(o order[T], back bool, a, b T) int {
		if o.down != back {
			a, b = b, a
		}
		return o.compare(a, b)
	}
	searched := strings.ToLower(l.Query)
	rank := func(item T) int {
		switch title := strings.ToLower(r.title(item)); {
		case title == searched:
			return 0
		case chosen != "" || strings.Contains(title, searched):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(l.Items, func(a, b T) int {
		return cmp.Or(rank(a)-rank(b), compare(r.orders[at], back, a, b), compare(r.orders[0], false, a, b))
	})
}

// url returns the URL of the page with another value of a parameter, "" for none.
func (l *listing[T]) url(name, value string) string {
	to := maps.Clone(l.links)
	if to.Del(name); value != "" {
		to.Set(name, value)
	}
	return "/console/" + l.Name + "?" + to.Encode()
}

// cut divides a long name before its last characters. The page shortens the first part, so that names which differ at
// their ends look different.
func cut(name string) (parts [2]string) {
	const tail, short = 10, 18
	runes := []rune(name)
	if len(runes) <= short {
		return [2]string{"", name}
	}
	at := len(runes) - tail
	for at > 0 && (unicode.Is(unicode.M, runes[at]) || runes[at] == '\u200d' || runes[at-1] == '\u200d') {
		at--
	}
	return [2]string{string(runes[:at]), string(runes[at:])}
}
