package store_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
)

func TestNormalizeCode(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"PAIR-0123-ABCD": "PAIR-0123-ABCD", "pair-o1i3-abcl": "PAIR-0113-ABC1", "0123abcd": "PAIR-0123-ABCD",
		" PAIR 0123 ABCD\n": "PAIR-0123-ABCD", "PAIR0123ABCD": "PAIR-0123-ABCD", "palr-0123-abcd": "PAIR-0123-ABCD",
		"PAIR-PAIR-PAIR": "PAIR-PA1R-PA1R", "PAIR-PAIR": "PAIR-PA1R-PA1R", "p-a-i-r-0-1-2-3-a-b-c-d": "PAIR-0123-ABCD",
		"": "", "PAIR-": "", "PAIR-0123-ABC": "", "PAIR-0123-ABCDE": "", "PAIR-0123-ABCU": "", "PEAR-0123-ABCD": "",
		"PAIR-0123-ABC\x00": "", "PAIR-0123-ABCı": "", "0123-ABCé": "", strings.Repeat("-", 1000) + "0123ABCD": "",
	} {
		if got, ok := store.NormalizeCode(typed); got != want || ok != (want != "") {
			t.Errorf("%q became %q, %v, not %q", typed, got, ok, want)
		}
	}
}

func FuzzNormalizeCode(f *testing.F) {
	for _, s := range []string{"PAIR-0123-ABCD", "pair o1il abcd", "PAIR-PAIR", "", "\xff"} {
		f.Add(s)
	}
	form := regexp.MustCompile(`^PAIR-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}$`)
	f.Fuzz(func(t *testing.T, s string) {
		code, ok := store.NormalizeCode(s)
		if !ok {
			if code != "" {
				t.Errorf("%q is no code, and became %q", s, code)
			}
			return
		}
		if !form.MatchString(code) {
			t.Errorf("%q became %q", s, code)
		}
		for _, same := range []string{code, code[5:], strings.ToLower(code), strings.ReplaceAll(code, "-", " ")} {
			if again, ok := store.NormalizeCode(same); !ok || again != code {
				t.Errorf("%q became %q, and %q then %q", s, code, same, again)
			}
		}
	})
}
