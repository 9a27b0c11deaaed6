package console

import (
	"cmp"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// pageSize is how many rows a list shows at once.
const pageSize = 50

// columns describes a list: how the URL of its page searches, filters and sorts it.
type columns[T any] struct {
	name    string         // of the tab; also its path
	text    func(T) string // a search finds its words; nil: the items are those found
	orders  []string       // names of columns in the URL: of the titles, of the default order, and of others
	values  func(T) []any  // of these columns
	filters []filter[T]
	selects []selection // filters that the items have passed
	kept    []string    // other parameters of the page
}

// compare compares values of a column: texts without case, or numbers and times, the largest first.
func compare(a, b any) int {
	if text, ok := a.(string); ok {
		return strings.Compare(strings.ToLower(text), strings.ToLower(b.(string)))
	}
	number := func(v any) float64 {
		if at, ok := v.(*time.Time); !ok {
			return reflect.ValueOf(v).Convert(reflect.TypeFor[float64]()).Float()
		} else if at != nil {
			return float64(at.UnixMilli())
		}
		return 0
	}
	return cmp.Compare(number(b), number(a))
}

// filter selects the items with a value.
type filter[T any] struct {
	name, label string
	values      func(T) []string // of an item
}

// selection is a filter of a page: a parameter of the URL with its values, none for a day.
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
	Kept     []named // other parameters and their values, which the form and links keep
	Filtered bool    // by the search or a filter
	Total    int     // before that
	Matching int
	Page     int // from 1
	Pages    int
	Prev     string // URL, "" if there is none
	Next     string
	links    url.Values // the parameters of all links
	heads    map[string]head
}

// head is the head of a column.
type head struct {
	Title, Class string
	URL          string // of the page sorted by it, "" if it cannot be
	Sorted       string // aria-sort
}

// Head returns the head of a column.
func (l listing[T]) Head(order, title, class string) head {
	return head{title, class, l.heads[order].URL, l.heads[order].Sorted}
}

// First and Last are the numbers of the shown items among the matching ones, from 1.
func (l listing[T]) First() int { return (l.Page-1)*pageSize + 1 }
func (l listing[T]) Last() int  { return (l.Page-1)*pageSize + len(l.Items) }

// list filters and sorts items by the parameters of the page and returns the requested page. All words of q must be in
// the text of an item, ignoring case. A page number past the end is the last page: rows may have been removed in the
// meantime.
func list[T any](v *visit, c columns[T], items []T) listing[T] {
	query := v.r.URL.Query()
	l := listing[T]{
		Name: c.name, Items: slices.Clone(items), Query: strings.TrimSpace(query.Get("q")), Total: len(items), Page: 1,
		Selects: slices.Clone(c.selects), links: make(url.Values), heads: make(map[string]head),
	}
	for _, f := range c.filters {
		l.filter(f, items, query.Get(f.name))
	}
	l.Items = slices.DeleteFunc(l.Items, func(item T) bool {
		return c.text != nil && !manage.HasWords(c.text(item), l.Query)
	})
	for _, s := range append(l.Selects, selection{Name: "q", Value: l.Query}) {
		l.links.Set(s.Name, s.Value)
		l.Filtered = l.Filtered || s.Value != ""
	}
	for _, name := range append(c.kept, "sort") {
		l.links.Set(name, query.Get(name))
		l.Kept = append(l.Kept, named{name, query.Get(name)})
	}
	if len(c.orders) > 0 && len(l.Items) > 0 {
		l.sort(c, query.Get("sort"))
	}
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
func (l *listing[T]) filter(f filter[T], all []T, value string) {
	values := map[string]bool{value: true} // may be of an old link
	for _, item := range all {
		for _, has := range f.values(item) {
			values[has] = true
		}
	}
	if delete(values, ""); value != "" {
		l.Items = slices.DeleteFunc(l.Items, func(item T) bool { return !slices.Contains(f.values(item), value) })
	}
	s := selection{Name: f.name, Label: f.label, Value: value}
	for _, has := range slices.Sorted(maps.Keys(values)) {
		s.Options = append(s.Options, named{has, has})
	}
	if value != "" || len(s.Options) > 1 {
		l.Selects = append(l.Selects, s)
	}
}

// sort sorts the items by a column, or back from its end. An item with the searched title comes first.
func (l *listing[T]) sort(c columns[T], chosen string) {
	name, back := strings.CutPrefix(chosen, "-")
	at := slices.Index(c.orders, name)
	if at < 0 {
		at, back = 1, false
	}
	for _, o := range c.orders {
		l.heads[o] = head{URL: l.url("sort", o)}
	}
	now, sign := head{URL: l.url("sort", "-"+c.orders[at]), Sorted: "descending"}, 1
	if back {
		now.URL, sign = l.url("sort", name), -1
	}
	if _, text := c.values(l.Items[0])[at].(string); text != back {
		now.Sorted = "ascending"
	}
	l.heads[c.orders[at]] = now
	exact, rows := map[bool]int{true: -1}, make([]row[T], len(l.Items))
	for i, item := range l.Items {
		rows[i] = row[T]{item, c.values(item)}
	}
	slices.SortStableFunc(rows, func(a, b row[T]) int {
		x, y := a.values, b.values
		return cmp.Or(exact[strings.EqualFold(x[0].(string), l.Query)]-exact[strings.EqualFold(y[0].(string), l.Query)],
			sign*compare(x[at], y[at]), compare(x[1], y[1]), compare(x[0], y[0]))
	})
	for i, r := range rows {
		l.Items[i] = r.item
	}
}

// row is an item with the values of its columns, which are computed once for all comparisons.
type row[T any] struct {
	item   T
	values []any
}

// url returns the URL of the page with another value of a parameter, "" for none.
func (l *listing[T]) url(name, value string) string {
	to := maps.Clone(l.links)
	to.Set(name, value)
	maps.DeleteFunc(to, func(_ string, values []string) bool { return values[0] == "" })
	return "/console/" + l.Name + "?" + to.Encode()
}

// cut divides a name before its end. If there is too little room, the page shortens the first part, as names often
// differ only at their ends.
func cut(name string) [2]string {
	const tail, short = 10, 18
	if runes := []rune(name); len(runes) > short {
		return [2]string{string(runes[:len(runes)-tail]), string(runes[len(runes)-tail:])}
	}
	return [2]string{"", name}
}
