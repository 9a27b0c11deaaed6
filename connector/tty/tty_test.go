package tty

import (
	"bytes"
	"os"
	"testing"

	"github.com/spf13/pflag"
)

// Texts have colors on terminals alone, unless the flag asks for them.
func TestPaint(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for value, want := range map[string]string{"auto": "down", "never": "down", "always": "\x1b[31mdown\x1b[0m"} {
		flags := new(pflag.FlagSet)
		Flag(flags)
		if err := flags.Parse([]string{"--color", value}); err != nil {
			t.Error(err)
		}
		if got := Paint(file, Bad, "down"); got != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
		if got := Paint(new(bytes.Buffer), Plain, "up"); got != "up" {
			t.Errorf("%s: a plain text is %q", value, got)
		}
	}
	flags := new(pflag.FlagSet)
	Flag(flags)
	if flags.Parse([]string{"--color=red"}) == nil || Paint(file, Bad, "down") != "down" {
		t.Error("red is accepted")
	}
	if width, height := Size(file); width != 0 || height != 0 || Is(file) || Is(new(bytes.Buffer)) {
		t.Error("a file is a terminal")
	}
}

// On a terminal, NO_COLOR and TERM=dumb turn colors off, but not those that the flag asks for.
func TestPaintOnTerminal(t *testing.T) {
	terminal, err := os.Open("/dev/ptmx")
	if err != nil || !Is(terminal) {
		t.Skip("there is no pseudo terminal")
	}
	defer terminal.Close()
	for _, tt := range []struct {
		noColor, term, flag string
		want                bool
	}{
		{"", "xterm", "auto", true},
		{"1", "xterm", "auto", false},
		{"", "dumb", "auto", false},
		{"", "xterm", "never", false},
		{"1", "dumb", "always", true},
	} {
		t.Setenv("NO_COLOR", tt.noColor)
		t.Setenv("TERM", tt.term)
		flags := new(pflag.FlagSet)
		Flag(flags)
		if err := flags.Set("color", tt.flag); err != nil {
			t.Fatal(err)
		}
		if got := Paint(terminal, Good, "up") != "up"; got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}
