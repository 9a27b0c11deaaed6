package scope

import "strings"

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
