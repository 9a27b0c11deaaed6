package main

import (
	"fmt"
	"regexp"
	"strings"
)

// version has a version in all necessary forms. In each form, a later version sorts after an earlier one.
type version struct {
	text string // semantic version, also for deb and rpm: 0.9.0, 1.0.0-rc.1, 0.9.0-dev.12+g849d86f16a92
	apk  string // for apk: 0.9.0, 1.0.0_rc1, 0.9.0_pre12
}

var versionForm = regexp.MustCompile(`^v?([0-9]+\.[0-9]+\.[0-9]+)(?:-(alpha|beta|dev|rc)\.([0-9]+))?` +
	`(?:\+g[0-9a-f]+)?([+.]dirty)?$`)

// parseVersion parses the version of a tag, or of a commit without one, as xcaddy.sh prints it. It accepts only
// the words for prereleases that Alpine knows; "pre" takes the place of "dev", which it sorts alike.
func parseVersion(s string) (version, error) {
	m := versionForm.FindStringSubmatch(s)
	if m == nil {
		return version{}, fmt.Errorf("%q is not a version; use one like v0.9.0 or v1.0.0-rc.1 (alpha, beta or rc)", s)
	}
	number, word, n, dirty := m[1], strings.Replace(m[2], "dev", "pre", 1), m[3], m[4]
	v := version{text: s, apk: number}
	if s[0] == 'v' {
		v.text = s[1:]
	}
	if word != "" {
		v.apk += "_" + word + n
	}
	if dirty != "" {
		v.apk += "_git"
	}
	return v, nil
}
