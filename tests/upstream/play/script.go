// Package play is a model server that plays scripts, in a process of its own, for
// the commands that measure. A script travels inside the prompt, which no gateway
// changes, and the whole answer follows from it.
package play

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Script is what the model server is to do with a request.
type Script struct {
	ID     int64         // of the request; 0: it is not reported
	Tokens int           // of the answer, or pieces of the tool's arguments
	Pace   time.Duration // between two of them; 0 writes them as fast as it can
	First  time.Duration // before the first
	Bulk   int           // bytes of each token, at least
	Stamp  bool          // the tokens are times of sending
	Ragged bool          // writes end within events and runes
	Tool   bool          // the answer is a call of a tool
	End    Ending
}

// An Ending is how the model server ends an answer.
type Ending int

// The endings.
const (
	Whole Ending = iota
	Dies         // it closes the connection in the middle
	Fails        // it answers with status 500
)

// String implements fmt.Stringer.
func (e Ending) String() string { return [...]string{"whole", "dies", "fails"}[e] }

// ToolName is the tool that requests offer and scripts call.
const ToolName = "remember"

// mark begins a script within a prompt, markEnd ends it.
const (
	mark    = "play:"
	markEnd = ":"
)

// numbers are the fields in the order of the format.
func (s *Script) numbers() [9]int64 {
	bit := map[bool]int64{true: 1}
	return [9]int64{
		s.ID, int64(s.Tokens), s.Pace.Microseconds(), s.First.Microseconds(), int64(s.Bulk),
		bit[s.Stamp], bit[s.Ragged], bit[s.Tool], int64(s.End),
	}
}

// String returns the script as it stands in a prompt.
func (s Script) String() string {
	fields := strings.Trim(fmt.Sprint(s.numbers()), "[]")
	return mark + strings.ReplaceAll(fields, " ", ",") + markEnd
}

// Find finds the last script in a request, whatever its form.
func Find(body []byte) (Script, error) {
	at := bytes.LastIndex(body, []byte(mark))
	if at < 0 {
		return Script{}, errors.New("the request holds no script")
	}
	text, _, closed := bytes.Cut(body[at+len(mark):], []byte(markEnd))
	var n [9]int64
	for i := range n {
		field, rest, more := bytes.Cut(text, []byte(","))
		var err error
		if n[i], err = strconv.ParseInt(string(field), 10, 64); err != nil || n[i] < 0 || more != (i < len(n)-1) || !closed {
			return Script{}, errors.New("the script is not nine numbers")
		}
		text = rest
	}
	if n[4] > int64(len(padding)) || n[8] > int64(Fails) {
		return Script{}, errors.New("the script has too long tokens, or an unknown ending")
	}
	return Script{
		ID: n[0], Tokens: int(n[1]), Pace: time.Duration(n[2]) * time.Microsecond, First: time.Duration(n[3]) * time.Microsecond,
		Bulk: int(n[4]), Stamp: n[5] == 1, Ragged: n[6] == 1, Tool: n[7] == 1, End: Ending(n[8]),
	}, nil
}

// texts are the ends of tokens: plain, with runes of two to four bytes, and with
// characters that JSON escapes; escaped are the same in JSON.
var (
	texts = []string{
		"token", " of", " text", " Grüße", " 模型", " 🦊", "\n", " \"quoted\"", " ", " é", " and", " \\path", " 完成", "’s", " the", " answer",
	}
	escaped = func() (all []string) {
		for _, t := range texts {
			q := quote(t)
			all = append(all, q[1:len(q)-1])
		}
		return all
	}()
)

// padding makes tokens as long as scripts want them.
var padding = strings.Repeat("x", 64<<10)

// appendToken appends the i-th token, with its end from one of the two lists.
// Those of each request are its own.
func (s *Script) appendToken(b []byte, i int, ends []string) []byte {
	start := len(b)
	b = strconv.AppendInt(append(b, 'w'), s.ID, 10)
	b = strconv.AppendInt(append(b, '.'), int64(i), 10)
	h := uint32(s.ID)*2654435761 + uint32(i)*40503
	end := (h >> 7) % uint32(len(texts))
	missing := max(0, s.Bulk-(len(b)-start)-len(texts[end]))
	return append(append(b, padding[:missing]...), ends[end]...)
}

// appendText appends all tokens.
func (s *Script) appendText(b []byte, ends []string) []byte {
	for i := range s.Tokens {
		b = s.appendToken(b, i, ends)
	}
	return b
}

// Text is the whole text of the answer, or of the tool's arguments.
func (s Script) Text() string { return string(s.appendText(nil, texts)) }

// Arguments are those of the tool's call.
func (s Script) Arguments() string {
	return fmt.Sprintf(`{"id":%d,"words":%s}`, s.ID, quote(s.Text()))
}

// pieces are the tool's arguments, in JSON, cut anywhere but within a rune.
func (s *Script) pieces() []string {
	pieces, runes := make([]string, s.Tokens), []rune(s.Arguments())
	for i := range pieces {
		pieces[i] = quote(string(runes[len(runes)*i/s.Tokens : len(runes)*(i+1)/s.Tokens]))
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
