package scope

import "strings"

// Match reports whether pattern matches the whole of name. "*" stands for any run of
// characters, also an empty one and also across "/" and ":"; "?" for exactly one; all
// others stand for themselves. Characters are bytes, as names are ASCII (CheckName).
//
// It keeps one restart point, behind the last "*" that it passed: if the rest fails,
// only that "*" has to take one character more, as those before it could only repeat
// matches of the same middle part. So it takes len(pattern)*len(name) steps at most.
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
