package main

import (
	"os/exec"
	"testing"

	"github.com/sassoftware/go-rpmutils"

	"github.com/goreleaser/nfpm/v2"
)

// releases are sorted by their order for package managers.
var releases = []struct{ text, apk string }{
	{"v0.9.0-beta.2", "0.9.0_beta2"},
	{"v0.9.0-dev.9+g849d86f16a92", "0.9.0_pre9"},
	{"v0.9.0-dev.1234+gbc9d86f16a92", "0.9.0_pre1234"},
	{"v0.9.0-dev.1235+g049d86f16a92", "0.9.0_pre1235"},
	{"v0.9.0-rc.1", "0.9.0_rc1"},
	{"v0.9.0-rc.2", "0.9.0_rc2"},
	{"v0.9.0", "0.9.0"},
	{"v0.9.1-dev.1240+g849d86f16a92", "0.9.1_pre1240"},
	{"v0.9.1", "0.9.1"},
	{"v0.10.0", "0.10.0"},
}

func TestVersions(t *testing.T) {
	var before string
	for i, test := range releases {
		v, err := parseVersion(test.text)
		if err != nil || v.apk != test.apk || "v"+v.text != test.text {
			t.Errorf("%s: %+v, %v", test.text, v, err)
		}
		info := nfpm.WithDefaults(&nfpm.Info{Version: v.text})
		number := info.Version // as nfpm writes it for deb and rpm
		if info.Prerelease != "" {
			number += "~" + info.Prerelease
		}
		if info.VersionMetadata != "" {
			number += "+" + info.VersionMetadata
		}
		if i > 0 {
			if rpmutils.Vercmp(before, number) >= 0 {
				t.Errorf("rpm does not upgrade %s to %s", before, number)
			}
			if _, err := exec.LookPath("dpkg"); err == nil &&
				exec.Command("dpkg", "--compare-versions", before, "lt", number).Run() != nil {
				t.Errorf("dpkg does not upgrade %s to %s", before, number)
			}
		}
		before = number
	}
	for text, apk := range map[string]string{
		"0.9.0": "0.9.0", "v0.9.0+dirty": "0.9.0_git",
		"v0.9.0-dev.1+g849d86f.dirty": "0.9.0_pre1_git",
	} {
		if v, err := parseVersion(text); err != nil || v.apk != apk {
			t.Errorf("%s: %+v, %v", text, v, err)
		}
	}
	for _, bad := range []string{
		"", "dev", "v1", "v0.9", "v0.9.0-12-g849d86f", "v0.9.0-next.1", "v0.9.0+", "v0.9.0\n",
		"../v0.9.0",
	} {
		if v, err := parseVersion(bad); err == nil {
			t.Errorf("%q is accepted: %+v", bad, v)
		}
	}
}
