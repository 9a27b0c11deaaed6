package config

import (
	"fmt"
	"strings"
)

// suggestion ends an error about a name that is not among the candidates. Without one
// that is near it is otherwise.
func suggestion(name string, candidates []string, otherwise string) string {
	if near := suggest(name, candidates); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return otherwise
}

// suggest returns the candidate that name was most likely meant to be, or "" if
// none is near: at most two edits away, not counting case, dashes and
// underscores.
func suggest(name string, candidates []string) string {
	best, bestDistance := "", 3
	for _, candidate := range candidates {
		if d := distance(fold(name), fold(candidate)); d < bestDistance && d < len(fold(candidate)) {
			best, bestDistance = candidate, d
		}
	}
	return best
}

func fold(s string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s))
}

// distance is the Levenshtein distance of two short strings; longer ones are
// not worth comparing and count as far.
func distance(a, b string) int {
	const long = 64
	if len(a) > long || len(b) > long {
		return long
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			edit := diagonal
			if a[i] != b[j] {
				edit++
			}
			diagonal = row[j+1]
			row[j+1] = min(edit, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
