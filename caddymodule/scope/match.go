package scope

import "unicode/utf8"

// Match reports whether pattern matches the whole of name. "*" stands for
// any run of characters, also an empty one and also across "/" and ":"; "?"
// stands for exactly one; all others stand for themselves. A character is a
// rune, or one byte that is not part of valid UTF-8.
//
// It keeps one restart point, after the last "*" it passed: if the rest fails
// later, only that "*" has to take one character more, since what an earlier
// "*" could still give up would only repeat shorter matches of the same
// middle part. That is why "*a*a*a*b" takes no exponential time: the bound is
// len(pattern)*len(name) steps, and nothing is allocated.
func Match(pattern, name string) bool {
	p, n := 0, 0
	restartP, restartN := -1, 0
	for n < len(name) {
		if p < len(pattern) && pattern[p] == '*' {
			p++
			restartP, restartN = p, n
			continue
		}
		if dp, dn, ok := step(pattern[p:], name[n:]); ok {
			p, n = p+dp, n+dn
			continue
		}
		if restartP < 0 {
			return false
		}
		restartN += width(name[restartN:])
		p, n = restartP, restartN
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// step compares the first character of pattern, which is no "*", with the
// first of name, which is not empty. It returns the bytes to advance in both.
func step(pattern, name string) (dp, dn int, ok bool) {
	if pattern == "" {
		return 0, 0, false
	}
	if pattern[0] == '?' {
		return 1, width(name), true
	}
	dp, dn = width(pattern), width(name)
	return dp, dn, pattern[:dp] == name[:dn]
}

// width is the length in bytes of the first character of s, which is not
// empty.
func width(s string) int {
	if s[0] < utf8.RuneSelf {
		return 1
	}
	_, size := utf8.DecodeRuneInString(s)
	return size
}
