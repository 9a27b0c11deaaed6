// Package tty knows what the terminal of a program shows: its width, and colors. Only states and
// outcomes have colors.
package tty

import (
	"errors"
	"io"
	"os"
	"slices"

	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// Tone is the color of a text by its meaning: an escape sequence. They are the terminal's own colors,
// which are readable on any background.
type Tone string

const (
	Plain   Tone = ""
	Faint   Tone = "\x1b[2m"
	Good    Tone = "\x1b[32m"
	Warning Tone = "\x1b[33m"
	Bad     Tone = "\x1b[31m"
)

// when is the flag --color.
var when = "auto"

// Flag adds the flag --color.
func Flag(flags *pflag.FlagSet) {
	when = "auto"
	flags.Func("color", "`WHEN` to color states: auto, always or never (default auto)", func(value string) error {
		if !slices.Contains([]string{"auto", "always", "never"}, value) {
			return errors.New("it must be auto, always or never")
		}
		when = value
		return nil
	})
}

// Paint returns s in a color, if w gets colors.
func Paint(w io.Writer, tone Tone, s string) string {
	auto := when == "auto" && Is(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if tone == Plain || !auto && when != "always" {
		return s
	}
	return string(tone) + s + "\x1b[0m"
}

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Width returns the columns of the terminal w, 0 if they are not known or w is not a terminal.
func Width(w io.Writer) (columns int) {
	if file, ok := w.(*os.File); ok {
		columns, _, _ = term.GetSize(int(file.Fd()))
	}
	return columns
}
