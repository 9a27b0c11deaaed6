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
	Name     string // of the tab; also its path
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

// list filters items by the parameter q and returns the requested page. All words
// of q must be in text(item), ignoring case. A page number past the end is the last
// page: rows may have been removed in the meantime.
func list[T any](v *visit, name string, items []T, text func(T) string) listing[T] {
	query := v.r.URL.Query()
	l := listing[T]{Name: name, Items: items, Query: strings.TrimSpace(query.Get("q")), Show: query.Get("show"), Total: len(items), Page: 1}
	for _, word := range strings.Fields(strings.ToLower(l.Query)) {
		var matching []T
		for _, item := range l.Items {
			if strings.Contains(strings.ToLower(text(item)), word) {
				matching = append(matching, item)
			}
		}
		l.Items = matching
	}
	l.Matching = len(l.Items)
	l.Pages = max(1, (l.Matching+pageSize-1)/pageSize)
	if n, err := strconv.Atoi(query.Get("page")); err == nil {
		l.Page = min(max(n, 1), l.Pages)
	}
	start := (l.Page - 1) * pageSize
	l.Items = l.Items[start:min(start+pageSize, l.Matching)]
	if l.Page > 1 {
		l.Prev = l.url(l.Page - 1)
	}
	if l.Page < l.Pages {
		l.Next = l.url(l.Page + 1)
	}
	return l
}

// url returns the URL of another page.
func (l listing[T]) url(page int) string {
	to := url.Values{"page": {strconv.Itoa(page)}}
	if l.Query != "" {
		to.Set("q", l.Query)
	}
	if l.Show != "" {
		to.Set("show", l.Show)
	}
	return "/console/" + l.Name + "?" + to.Encode()
}
