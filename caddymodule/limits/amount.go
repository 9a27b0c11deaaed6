package limits

import (
	"regexp"
	"strconv"
	"strings"
)

// amounts are whole numbers with a suffix. Separators are only between groups of three digits, so that a decimal
// comma is not taken for one.
var amounts = regexp.MustCompile(`^([0-9]{1,10}|[0-9]{1,3}(?:[_, \x{a0}\x{202f}][0-9]{3}){1,3})([kKmMgG]?)$`)

// ParseAmount parses a number as people write it: 60, 500k, 2M or 2_000_000.
func ParseAmount(text string) (n int, ok bool) {
	parts := amounts.FindStringSubmatch(strings.TrimSpace(text))
	if parts == nil {
		return 0, false
	}
	factor := map[string]int{"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[strings.ToLower(parts[2])]
	n, err := strconv.Atoi(strings.NewReplacer("_", "", ",", "", " ", "", "\u00a0", "", "\u202f", "").Replace(parts[1]))
	if err != nil || n > MaxLimit/factor {
		return 0, false
	}
	return n * factor, true
}
