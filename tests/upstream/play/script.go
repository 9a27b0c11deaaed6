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

// Flags of a script.
const (
	flagStamp = 1 << iota
	flagTool
)

// String returns the script as it stands in a prompt: seven numbers.
func (s Script) String() string {
	flags := 0
	for flag, on := range map[int]bool{flagStamp: s.Stamp, flagTool: s.Tool} {
		if on {
			flags |= flag
		}
	}
	return fmt.Sprintf("%s%d,%d,%d,%d,%d,%d,%d%s", mark, s.ID, s.Tokens, s.Pace.Microseconds(), s.First.Microseconds(),
		s.Bulk, flags, int(s.End), markEnd)
}

// Find finds the last script in a request, whatever its form.
func Find(body []byte) (Script, error) {
	at := bytes.LastIndex(body, []byte(mark))
	if at < 0 {
		return Script{}, errors.New("the request holds no script")
	}
	text := body[at+len(mark):]
	var n [7]int64
	for i := range n {
		digits := 0
		for digits < len(text) && digits < 18 && text[digits] >= '0' && text[digits] <= '9' {
			n[i] = 10*n[i] + int64(text[digits]-'0')
			digits++
		}
		end := byte(',')
		if i == len(n)-1 {
			end = markEnd[0]
		}
		if digits == 0 || digits == len(text) || text[digits] != end {
			return Script{}, errors.New("the script is not seven numbers")
		}
		text = text[digits+1:]
	}
	if n[4] > int64(len(padding)) || n[6] > int64(Fails) {
		return Script{}, errors.New("the script has too long tokens, or an unknown ending")
	}
	return Script{
		ID: n[0], Tokens: int(n[1]), Pace: time.Duration(n[2]) * time.Microsecond,
		First: time.Duration(n[3]) * time.Microsecond,
		Bulk:  int(n[4]), Stamp: n[5]&flagStamp != 0, Tool: n[5]&flagTool != 0,
		End: Ending(n[6]),
	}, nil
}

// texts are the ends of tokens: plain, with runes of two to four bytes, and with
// characters that JSON escapes; escaped are the same in JSON.
var (
	texts = []string{
		"token", " of", " text", " Grüße", " 模型", " 🦊", "\n", " \"quoted\"", " ", " é", " and", " \\path", " 完成", "’s",
		" the", " answer",
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
