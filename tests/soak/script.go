package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// A script says what the model server is to do with a request. It travels in
// the prompt, and all that the answer must hold follows from it.
type script struct {
	ID     int64         // of the request: no other has it
	Tokens int           // of the answer, or pieces of the tool's arguments
	Pace   time.Duration // between two of them
	First  time.Duration // before the first
	Bulk   int           // bytes of each token, at least
	Tool   bool          // the answer is a call of a tool
	End    ending
}

// An ending is how the model server ends an answer.
type ending string

const (
	whole    ending = "whole"
	dies     ending = "dies"  // it closes the connection in the middle
	fails500 ending = "error" // it answers with status 500
)

// String is the script as a prompt holds it.
func (s script) String() string {
	return fmt.Sprintf("soak:%d,%d,%d,%d,%d,%t,%s:", s.ID, s.Tokens, s.Pace.Milliseconds(), s.First.Milliseconds(), s.Bulk, s.Tool, s.End)
}

var scriptPattern = regexp.MustCompile(`soak:(\d+),(\d+),(\d+),(\d+),(\d+),(true|false),([a-z]+):`)

// findScript finds the last script in a request, whatever its form.
func findScript(body []byte) (script, error) {
	all := scriptPattern.FindAllSubmatch(body, -1)
	if len(all) == 0 {
		return script{}, errors.New("the request holds no script")
	}
	var s script
	var pace, first int64
	fields := bytes.Join(all[len(all)-1][1:], []byte(" "))
	if _, err := fmt.Sscan(string(fields), &s.ID, &s.Tokens, &pace, &first, &s.Bulk, &s.Tool, (*string)(&s.End)); err != nil {
		return script{}, fmt.Errorf("reading the script: %w", err)
	}
	s.Pace, s.First = time.Duration(pace)*time.Millisecond, time.Duration(first)*time.Millisecond
	return s, nil
}

// token is the i-th piece of the answer's text. Each request has its own, with
// a rune of three bytes and a character that JSON escapes.
func (s script) token(i int) string {
	t := fmt.Sprintf("w%d.%d→\"\n", s.ID, i)
	return t + strings.Repeat("x", max(0, s.Bulk-len(t)))
}

// text is the whole answer.
func (s script) text() string {
	var b strings.Builder
	for i := range s.Tokens {
		b.WriteString(s.token(i))
	}
	return b.String()
}

// arguments are those of the tool's call.
func (s script) arguments() string {
	return fmt.Sprintf(`{"id":%d,"words":%s}`, s.ID, quote(s.text()))
}

// pieces are what the answer is streamed in.
func (s script) pieces() []string {
	pieces := make([]string, s.Tokens)
	if !s.Tool {
		for i := range pieces {
			pieces[i] = s.token(i)
		}
		return pieces
	}
	// Arguments are cut anywhere but within a rune.
	runes := []rune(s.arguments())
	for i := range pieces {
		pieces[i] = string(runes[len(runes)*i/s.Tokens : len(runes)*(i+1)/s.Tokens])
	}
	return pieces
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string is always valid
	}
	return string(b)
}

// toolName is the tool that requests offer and scripts call.
const toolName = "remember"
