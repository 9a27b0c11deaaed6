// Package scope decides which deployment names a key may use. A scope is a
// comma-separated list of glob patterns. A name is allowed if a pattern matches
// all of it.
//
// The patterns deliberately differ from those of path and path/filepath. Slashes
// and colons are ordinary characters of deployment names such as
// "meta/llama-3:70b", so "*" matches them. Character classes and escapes are not
// supported.
package scope

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of Parse and CheckName, in bytes.
const (
	MaxName  = 128  // a deployment name, and one pattern of a scope
	MaxScope = 4096 // a whole scope
)

// Scope is a parsed list of patterns. The zero Scope allows nothing. A Scope
// is immutable and safe for concurrent use.
type Scope struct {
	patterns []string
	within   *Scope // allows no name that this one does not; nil: any
}

// Parse parses comma-separated patterns. White space around them is ignored. A
// pattern consists of the characters of deployment names (see CheckName), "*"
// and "?". Other characters and empty patterns are errors.
func Parse(s string) (Scope, error) {
	if strings.TrimSpace(s) == "" {
		return Scope{}, errors.New(`the scope is empty; "*" allows all deployments`)
	}
	if len(s) > MaxScope {
		return Scope{}, fmt.Errorf("the scope has %d bytes, more than %d", len(s), MaxScope)
	}
	var patterns []string
	for p := range strings.SplitSeq(s, ",") {
		p = strings.TrimSpace(p)
		if err := CheckPattern(p); err != nil {
			return Scope{}, fmt.Errorf("the scope: %w", err)
		}
		patterns = append(patterns, p)
	}
	return Scope{patterns: patterns}, nil
}

// Within returns a scope with the patterns of s that allows only names that bound also allows, if bound is not nil.
func (s Scope) Within(bound *Scope) Scope { return Scope{s.patterns, bound} }

// Union returns a scope with the patterns of all scopes.
func Union(scopes ...Scope) (all Scope) {
	for _, s := range scopes {
		all.patterns = append(all.patterns, s.patterns...)
	}
	return all
}

// Allows reports whether a pattern matches name, and the scope that bounds this one allows it. It does not allocate.
func (s Scope) Allows(name string) bool {
	return s.Matches(name) && (s.within == nil || s.within.Allows(name))
}

// Matches reports whether a pattern matches name.
func (s Scope) Matches(name string) bool {
	return slices.ContainsFunc(s.patterns, func(p string) bool { return Match(p, name) })
}

// String returns the patterns in the form that Parse accepts, without white space.
func (s Scope) String() string { return strings.Join(s.patterns, ",") }

// CheckName returns an error if name is not a valid deployment name. A name has
// 1 to 128 ASCII letters, digits and . _ : / @ + -
func CheckName(name string) error {
	if name == "" {
		return errors.New("the deployment name is empty")
	}
	if len(name) > MaxName {
		return fmt.Errorf("the deployment name has %d characters, more than %d", len(name), MaxName)
	}
	for _, r := range name {
		if !nameRune(r) {
			return fmt.Errorf("the deployment name %q contains %q: use letters, digits and . _ : / @ + -", name, r)
		}
	}
	return nil
}

// CheckPattern returns an error if p is neither a valid deployment name nor a pattern.
func CheckPattern(p string) error {
	if p == "" {
		return errors.New("a pattern is empty: remove it and its extra comma")
	}
	if len(p) > MaxName {
		return fmt.Errorf("a pattern has %d characters, more than %d", len(p), MaxName)
	}
	for _, r := range p {
		if r != '*' && r != '?' && !nameRune(r) {
			return fmt.Errorf("the pattern %q contains %q, which is not allowed in deployment names: "+
				"use letters, digits, . _ : / @ + - and the wildcards * and ?", p, r)
		}
	}
	return nil
}

// IsPattern reports whether a name contains wildcards.
func IsPattern(name string) bool { return strings.ContainsAny(name, "*?") }

// ComparePatterns orders patterns: first by the number of literal characters, descending, then by text.
func ComparePatterns(a, b string) int {
	literals := func(p string) int { return len(p) - strings.Count(p, "*") - strings.Count(p, "?") }
	return cmp.Or(literals(b)-literals(a), strings.Compare(a, b))
}

// Canonical returns the canonical form of a model name. Names are compared as Ollama does: case-insensitively, with an
// optional ":latest".
func Canonical(name string) string { return strings.ToLower(untagged(name)) }

// Compare compares the canonical forms of two names. It allocates nothing.
func Compare(a, b string) int {
	a, b = untagged(a), untagged(b)
	for a != "" && b != "" {
		x, n := utf8.DecodeRuneInString(a)
		y, m := utf8.DecodeRuneInString(b)
		if c := cmp.Compare(unicode.ToLower(x), unicode.ToLower(y)); c != 0 {
			return c
		}
		a, b = a[n:], b[m:]
	}
	return cmp.Compare(len(a), len(b))
}

// untagged returns a name without the tag ":latest", which Ollama assumes.
func untagged(name string) string {
	const latest = ":latest"
	if i := len(name) - len(latest); i >= 0 && strings.EqualFold(name[i:], latest) {
		return name[:i]
	}
	return name
}

func nameRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("._:/@+-", r)
}

// Match reports whether pattern matches the whole of name. "*" matches any sequence of
// characters, including "/", ":" and the empty sequence. "?" matches one character.
// Characters are bytes, as names are ASCII (CheckName).
//
// It only ever backtracks to the last "*" in the pattern, and thus takes at most
// len(pattern)*len(name) steps.
func Match(pattern, name string) bool {
	p, n := 0, 0
	restartP, restartN := -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			p++
			restartP, restartN = p, n
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p, n = p+1, n+1
		case restartP < 0:
			return false
		default:
			restartN++
			p, n = restartP, restartN
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
