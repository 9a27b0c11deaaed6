package config

import (
	"fmt"
	"strings"
)

// suggestion returns the end of an error about an unknown name: the most similar
// candidate, or else otherwise.
func suggestion(name string, candidates []string, otherwise string) string {
	if similar := suggest(name, candidates); similar != "" {
		return fmt.Sprintf("did you mean %q?", similar)
	}
	return otherwise
}

// suggest returns the candidate most similar to name, or "" if all are more than two
// edits away. Case, dashes and underscores do not count.
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

// distance returns the Levenshtein distance of two short strings, and a large number for
// long ones.
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
