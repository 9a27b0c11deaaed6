package downloads

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// Newer reports whether version a is newer than b. Versions are compared as semantic ones,
// with or without a "v". Builds of commits after a tag, such as 0.9.0+12.g849d86f16a92, are
// compared by their number of commits. Versions that are not semantic are older than all
// others.
func Newer(a, b string) bool {
	va, errA := semver.NewVersion(a)
	vb, errB := semver.NewVersion(b)
	if errA != nil || errB != nil {
		return errA == nil
	}
	return cmp.Or(va.Compare(vb), cmp.Compare(commits(va), commits(vb))) > 0
}

// commits returns the number of commits since the tag.
func commits(v *semver.Version) int {
	number, _, _ := strings.Cut(v.Metadata(), ".")
	n, _ := strconv.Atoi(number) // 0 for the tag itself
	return n
}
