// Package tty measures the terminal of a program, and colors texts on it.
package tty

import (
	"errors"
	"io"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// Tone is the meaning of a text. Its value selects a color of the terminal, which is readable on any background.
type Tone string

const (
	Plain   Tone = ""
	Faint   Tone = "\x1b[2m"
	Good    Tone = "\x1b[32m"
	Warning Tone = "\x1b[33m"
	Bad     Tone = "\x1b[31m"
)

var colorMode string // the flag --color

// Flag adds the flag --color.
func Flag(flags *pflag.FlagSet) {
	colorMode = "auto"
	flags.Func("color", "`WHEN` to color states: auto, always or never (default auto)", func(value string) error {
		if colorMode = value; value != "auto" && value != "always" && value != "never" {
			return errors.New("it must be auto, always or never")
		}
		return nil
	})
}

// Paint returns s in a color, unless w gets no colors.
func Paint(w io.Writer, tone Tone, s string) string {
	auto := colorMode == "auto" && Is(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	if tone == Plain || !auto && colorMode != "always" {
		return s
	}
	return string(tone) + s + "\x1b[0m"
}

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Size returns the columns and lines of the terminal w, 0 if they are unknown.
func Size(w io.Writer) (width, height int) {
	if file, ok := w.(*os.File); ok {
		width, height, _ = term.GetSize(int(file.Fd()))
	}
	return width, height
}
