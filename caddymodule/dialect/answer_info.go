package dialect

import (
	"slices"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/sse"
)

// AnswerInfo describes an upstream's answer, for traces.
type AnswerInfo struct {
	ID            string
	FinishReasons []string // one for each choice that has ended, by index
	choices       []int64  // the indexes
	reader        sse.Reader
}

// Read reads a whole answer.
func (a *AnswerInfo) Read(body []byte) { a.chunk(body) }

// Feed reads the next bytes of an event stream.
func (a *AnswerInfo) Feed(p []byte) {
	for a.reader.Feed(p); a.reader.Next(); {
		a.chunk(a.reader.Data)
	}
}

// Held returns the number of bytes that Feed has buffered.
func (a *AnswerInfo) Held() int64 { return a.reader.Held() }

// chunk reads a chunk of a stream, or a whole answer.
func (a *AnswerInfo) chunk(data []byte) {
	for m := jsonscan.Object(data); m.Next(); {
		switch string(m.Name()) {
		case "id":
			if a.ID == "" {
				a.ID = info(m.Raw())
			}
		case "choices":
			for list := jsonscan.At(data, m.Value.Start); list.Next(); {
				a.choice(data, list.Value.Start, int64(list.Index))
			}
		}
	}
}

// choice reads the choice at data[i]. Without an index, it is position.
func (a *AnswerInfo) choice(data []byte, i int, position int64) {
	index, reason := position, ""
	for m := jsonscan.At(data, i); m.Next(); {
		switch string(m.Name()) {
		case "index":
			if n, ok := jsonscan.Integer(m.Raw()); ok {
				index = n
			}
		case "finish_reason":
			reason = info(m.Raw())
		}
	}
	at, found := slices.BinarySearch(a.choices, index)
	if reason == "" || found || len(a.choices) == maxChoices {
		return
	}
	a.choices = slices.Insert(a.choices, at, index)
	a.FinishReasons = slices.Insert(a.FinishReasons, at, reason)
}

// info returns a string, "" for other values and for strings that are too long for a trace.
func info(raw []byte) string {
	const maxInfo = 128 // bytes
	if len(raw) > maxInfo {
		return ""
	}
	return jsonscan.String(raw)
}
