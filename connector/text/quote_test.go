package text

import (
	"os/exec"
	"testing"
)

func TestShellQuote(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"qwen3", "org/model:7b@x+y-z_1.5", "-rf", "it's", `say "hi"`, "$(touch /tmp/x)", "`id`", "${HOME}", `back\slash`,
		`trailing\`,
		"two words", "two\nlines", "tab\there", "bell\a", "é ☃ 😀", "bad\xffutf8", "'''", `"""`,
		"a;b", "a&b", "a|b", "a>b", "#comment", "~", "*", "!history", "%s%d", "",
	} {
		if got := shellPrints(t, ShellQuote(s)); got != s+"|" {
			t.Errorf("sh reads ShellQuote(%q) as %q", s, got)
		}
		if got := shellPrints(t, ShellWord(s)+" end"); got != s+"|end|" {
			t.Errorf("sh reads ShellWord(%q) as %q", s, got)
		}
	}
}

// shellPrints returns the words as a shell reads them, each with a | after it.
func shellPrints(t *testing.T, words string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s|' `+words).CombinedOutput()
	if err != nil {
		t.Fatalf("sh: %v: %s", err, out)
	}
	return string(out)
}

func TestPowerShellQuote(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"a b": "'a b'", "it's": "'it''s'", "$x": "'$x'", "‘a’‚b‛": "'‘‘a’’‚‚b‛‛'", "`n": "'`n'",
	} {
		if got := PowerShellQuote(s); got != want {
			t.Errorf("PowerShellQuote(%q) = %s, want %s", s, got, want)
		}
	}
}
