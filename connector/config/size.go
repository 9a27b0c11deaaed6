package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/connector/memory"
)

// Bounds of the memory for requests, in bytes.
const (
	minMemory = 16 << 20 // smallest configurable value
	// Bounds of the default.
	lowMemory  = 64 << 20
	highMemory = 1 << 30
)

// MemoryBudget returns the bytes of requests that a connector may hold. The configuration
// must be valid.
func (c *Config) MemoryBudget() int64 {
	if n, err := parseSize(c.MaxMemory); err == nil {
		return n
	}
	return min(max(memory.Available()/8, lowMemory), highMemory)
}

// parseSize parses a size such as 256MiB. Sizes below minMemory are errors.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "BGKMTbgikmt ")
	n, err := strconv.ParseInt(digits, 10, 32)
	unit := map[string]int64{"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}[strings.TrimSuffix(
		strings.ToLower(strings.TrimSpace(text[len(digits):])), "b")]
	if err != nil || n <= 0 || unit == 0 {
		return 0, fmt.Errorf(`%q is not a size; write one such as "256MiB"`, text)
	}
	if n*unit < minMemory {
		return 0, fmt.Errorf("%q is too small; the connector needs at least 16MiB", text)
	}
	return n * unit, nil
}
