package downloads

import "testing"

// Versions are ordered, so that a gateway that is built from a later commit is newer.
func TestNewer(t *testing.T) {
	t.Parallel()
	order := []string{
		"unknown", "0.9.0-dev.2+gabcdef", "v0.9.0-dev.12+g123456", "0.9.0-rc.1", "v0.9.0", "0.9.1",
		"v0.10.0", "1.0.0",
	}
	for i, a := range order {
		for j, b := range order {
			if got, want := Newer(a, b), i > j; got != want {
				t.Errorf("Newer(%s, %s) = %t", a, b, got)
			}
		}
	}
	for _, same := range [][2]string{
		{"0.9.0", "v0.9.0"},
		{"dev", "5dc4709-dirty"},
		{"0.9.0-dev.2+gabc", "0.9.0-dev.2+gdef"},
		{"0.9.0+dirty", "0.9.0"},
	} {
		if Newer(same[0], same[1]) || Newer(same[1], same[0]) {
			t.Errorf("%q have an order", same)
		}
	}
}
