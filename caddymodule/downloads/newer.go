package downloads

import "github.com/Masterminds/semver/v3"

// Newer reports whether version a is newer than b. Versions are compared as semantic ones,
// with or without a "v". Versions that are not semantic are older than all others.
func Newer(a, b string) bool {
	va, errA := semver.NewVersion(a)
	vb, errB := semver.NewVersion(b)
	if errA != nil || errB != nil {
		return errA == nil
	}
	return va.GreaterThan(vb)
}
