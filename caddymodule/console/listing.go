package console

import (
	"net/url"
	"strconv"
	"strings"
)

// pageSize is how many rows a list shows at once.
const pageSize = 50

// listing is one page of a list that may be long, and the way to the others.
type listing[T any] struct {
	Path     string // of the tab
	Items    []T
	Query    string // what was searched for
	Show     string // the part of the list that this is, kept by search and paging
	Total    int    // before the search
	Matching int
	Page     int // from 1
	Pages    int
	Prev     string // URL, "" if there is none
	Next     string
}

// First and Last number the shown items among the matching ones, from 1.
func (l listing[T]) First() int { return (l.Page-1)*pageSize + 1 }
func (l listing[T]) Last() int  { return (l.Page-1)*pageSize + len(l.Items) }

// Region is the live region of the tab that shows the list. It is what a search
// draws again.
func (l listing[T]) Region() string { return strings.TrimPrefix(l.Path, "/console/") + "-list" }

// list searches items for the q of a query and cuts out its page. The words
// of q must all be in text(item), in any letter case. A page after the last
// one is the last one: rows may have gone since the link was made.
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

// pageURL is path with the known parameters of query, at another page.
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
