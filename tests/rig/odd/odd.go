// Package odd generates JSON that no sane program sends, for tests of the code that reads it.
package odd

import (
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// Text is a text in odd values that no log may contain.
const Text = "quartz-sphinx"

// Values stand in the place of other values.
var Values = [...]string{
	`null`, `true`, `0`, `-1`, `1e999`, `12345678901234567890`,
	`""`, `"` + Text + `"`, `"7"`, `"\ud800` + Text + `"`, `"\u0000"`, `"` + strings.Repeat(Text+" ", 1000) + `"`,
	`[]`, `[0]`, `[[0]]`, `{}`, `{"type":0,"type":[]}`, strings.Repeat(`[`, 50) + `0` + strings.Repeat(`]`, 50),
}

// Shapes are bodies that a reader once misread. They are also seeds of fuzz targets.
var Shapes = [...]string{
	`{"model":"m","messages":[[0]]}`,
	`{"model":"m","messages":[{"role":"user","content":[[0]]}]}`,
	`{"model":"m","messages":[{"role":"assistant","tool_calls":[[0]]}]}`,
	`{"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":[0]}]}]}`,
	`{"choices":[[0]]}`,
	`{"error":[[0]],"detail":[[0]],"message":[0]}`,
	`{"choices":[{"index":0,"delta":[0],"message":[0],"finish_reason":"stop"}]}`,
	`{"choices":[{"index":0,"delta":{"tool_calls":[[0]]},"message":{"tool_calls":[[0]]},"finish_reason":"stop"}]}`,
}

// Each calls f with many variants of a JSON text: each value replaced by each of Values, and each member of an
// object removed and repeated. n counts the calls.
func Each(text string, f func(n int, mutant string)) {
	n := 0
	put := func(at jsonscan.Span, values ...string) {
		for _, value := range values {
			f(n, text[:at.Start]+value+text[at.End:])
			n++
		}
	}
	var walk func(at jsonscan.Span)
	walk = func(at jsonscan.Span) {
		put(at, Values[:]...)
		if text[at.Start] != '{' && text[at.Start] != '[' {
			return
		}
		for m := jsonscan.MembersAt([]byte(text), at.Start); m.Next(); {
			if text[at.Start] == '{' {
				member := jsonscan.Span{Start: m.Key.Start, End: m.Value.End}
				put(member, `"left":"out"`, text[member.Start:member.End]+`,`+text[m.Key.Start:m.Key.End]+`:[0]`)
			}
			walk(m.Value)
		}
	}
	start := len(text) - len(strings.TrimLeft(text, jsonscan.Space))
	walk(jsonscan.Span{Start: start, End: len(strings.TrimRight(text, jsonscan.Space))})
}
