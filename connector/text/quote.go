package text

import (
	"regexp"
	"strings"
)

// ShellQuote returns s as one literal word of a POSIX shell.
func ShellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

var plainWord = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]+$`)

// ShellWord is [ShellQuote], without the quotes where they are not needed.
func ShellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return ShellQuote(s)
}

var powerShellQuotes = regexp.MustCompile("['‘’‚‛]")

// PowerShellQuote returns s as a literal string of PowerShell. PowerShell accepts
// typographic quotes as quotes, too.
func PowerShellQuote(s string) string {
	return "'" + powerShellQuotes.ReplaceAllString(s, "$0$0") + "'"
}
