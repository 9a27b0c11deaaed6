package console

import (
	"net/url"
	"strconv"
	"strings"
)

// pageSize is how many rows a list shows at once.
const pageSize = 50

// listing is one page of a list, with links to the others.
type listing[T any] struct {
	Path     string // of the tab
	Items    []T
	Query    string // the search
	Show     string // the shown part of the records; kept by search and paging
	Total    int    // before the search
	Matching int
	Page     int // from 1
	Pages    int
	Prev     string // URL, "" if there is none
	Next     string
}

// First and Last are the positions of the shown items among the matching ones, from 1.
func (l listing[T]) First() int { return (l.Page-1)*pageSize + 1 }
func (l listing[T]) Last() int  { return (l.Page-1)*pageSize + len(l.Items) }

// Region is the live region that shows the list. A search redraws it.
func (l listing[T]) Region() string { return strings.TrimPrefix(l.Path, "/console/") + "-list" }

// list filters items by the parameter q and returns the requested page. All words
// of q must be in text(item), ignoring case. A page number past the end is the last
// page: rows may have been removed in the meantime.
func list[T any](path string, query url.Values, items []T, text func(T) string) listing[T] {
	l := listing[T]{Path: path, Items: items, Query: strings.TrimSpace(query.Get("q")), Show: query.Get("show"), Total: len(items), Page: 1}
	if words := strings.Fields(strings.ToLower(l.Query)); len(words) > 0 {
		l.Items = nil
		for _, item := range items {
			if hasAll(strings.ToLower(text(item)), words) {
				l.Items = append(l.Items, item)
			}
		}
	}
	l.Matching = len(l.Items)
	l.Pages = max(1, (l.Matching+pageSize-1)/pageSize)
	if n, err := strconv.Atoi(query.Get("page")); err == nil {
		l.Page = min(max(n, 1), l.Pages)
	}
	start := (l.Page - 1) * pageSize
	l.Items = l.Items[start:min(start+pageSize, l.Matching)]
	if l.Page > 1 {
		l.Prev = pageURL(path, query, l.Page-1)
	}
	if l.Page < l.Pages {
		l.Next = pageURL(path, query, l.Page+1)
	}
	return l
}

func hasAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// pageURL returns path with the known parameters of query and another page number.
func pageURL(path string, query url.Values, page int) string {
	to := url.Values{}
	for _, name := range []string{"q", "show"} {
		if v := query.Get(name); v != "" {
			to.Set(name, v)
		}
	}
	to.Set("page", strconv.Itoa(page))
	return path + "?" + to.Encode()
}
