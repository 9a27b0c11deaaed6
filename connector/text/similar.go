package text

import "strings"

const (
	maxEdits      = 2    // between a name and a suggestion for it
	maxSimilar    = 128  // bytes of a name that gets suggestions
	maxCandidates = 1000 // that are compared
)

// Similar returns the candidate that a mistyped name most likely stands for, or "". Case,
// dashes and underscores do not count. At most two letters may differ, and in short names one. A
// candidate may also have a tag that the name lacks: "llama3.2:3b" for "llama3.2". Of equally
// similar candidates, the first one wins. The work is linear in the candidates' length, and bounded.
func Similar(name string, candidates []string) string {
	if len(name) > maxSimilar {
		return ""
	}
	name = fold(name)
	best, edits, tagged := "", maxEdits+1, ""
	for _, candidate := range candidates[:min(len(candidates), maxCandidates)] {
		if len(candidate) > maxSimilar {
			continue
		}
		folded := fold(candidate)
		if d := distance(name, folded); d < edits && 2*d < len(folded) {
			best, edits = candidate, d
		}
		if tagged == "" && name != "" && strings.HasPrefix(folded, name+":") {
			tagged = candidate
		}
	}
	if edits > 0 && tagged != "" {
		return tagged
	}
	return best
}

var ignored = strings.NewReplacer("_", "", "-", "")

func fold(s string) string { return ignored.Replace(strings.ToLower(s)) }

// distance returns the Levenshtein distance of two names of at most maxSimilar bytes, or a number
// above maxEdits. It computes only the cells near the diagonal: the others exceed maxEdits.
func distance(a, b string) int {
	const far = maxEdits + 1
	if max(len(a)-len(b), len(b)-len(a)) > maxEdits {
		return far
	}
	var cells [maxSimilar + 1]int
	row := cells[:len(b)+1]
	for j := range row {
		row[j] = min(j, far)
	}
	for i := range len(a) {
		first := max(i-maxEdits, 0)
		diagonal, left := row[first], far
		if first == 0 {
			row[0] = min(i+1, far)
			left = row[0]
		}
		for j := first; j < min(i+maxEdits+1, len(b)); j++ {
			edit := diagonal
			if a[i] != b[j] {
				edit++
			}
			diagonal = row[j+1]
			left = min(edit, diagonal+1, left+1, far)
			row[j+1] = left
		}
	}
	return row[len(b)]
}
