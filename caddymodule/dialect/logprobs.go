package dialect

import (
	"bytes"
	"slices"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// A choice of a chat completion has the log probabilities of its tokens as
//
//	{"content":[{"token","logprob","bytes","top_logprobs":[{"token","logprob","bytes"},…]},…]}
//
// In the responses dialect, the elements of that list are a member of the text part. A
// list is stored as JSON elements separated by commas, without brackets.

// appendLogprobs appends the elements of a choice's logprobs to a list. It keeps only
// the members that the responses dialect has.
func appendLogprobs(list, logprobs []byte) []byte {
	if !jsonscan.IsObject(logprobs) {
		return list
	}
	content := jsonscan.Member(logprobs, "content")
	if !jsonscan.IsArray(content) {
		return list
	}
	for m := jsonscan.MembersAt(content, 0); m.Next(); {
		list = appendLogprob(list, len(list) == 0, m.Raw(), true)
	}
	return list
}

// appendLogprob appends the element of one token. It has every member that clients'
// types require, including top_logprobs if top is set. An element without any known
// member is skipped.
func appendLogprob(b []byte, first bool, token []byte, top bool) []byte {
	if !jsonscan.IsObject(token) {
		return b
	}
	f := readFields(token)
	text, logprob, raw, others := f.given("token"), f.given("logprob"), f.given("bytes"), f.given("top_logprobs")
	if text == nil && logprob == nil && raw == nil && others == nil {
		return b
	}
	if !first {
		b = append(b, ',')
	}
	if !jsonscan.IsString(text) {
		text = []byte(`""`)
	}
	if !jsonscan.IsNumber(logprob) {
		logprob = []byte("0")
	}
	if !jsonscan.IsArray(raw) {
		raw = []byte("[]")
	}
	b = jsonscan.Appendf(b, `{"token":%s,"logprob":%s,"bytes":%s`, text, logprob, oneLine(raw))
	if !top {
		return append(b, '}')
	}
	b = append(b, `,"top_logprobs":[`...)
	if jsonscan.IsArray(others) {
		from := len(b)
		for m := jsonscan.MembersAt(others, 0); m.Next(); {
			b = appendLogprob(b, len(b) == from, m.Raw(), false)
		}
	}
	return append(b, "]}"...)
}

// joinLogprobs concatenates two lists.
func joinLogprobs(list, more []byte) []byte {
	if len(more) == 0 {
		return list
	}
	if len(list) > 0 {
		list = append(list, ',')
	}
	return append(list, more...)
}

// logprobsOf returns the part of a list that covers text, or nil. Some servers also list
// the tokens of the thinking and the end token.
func logprobsOf(list []byte, text string) []byte {
	whole := append(append([]byte{'['}, list...), ']')
	var all []byte
	var starts []int // of each token in all
	var spans []jsonscan.Span
	for m := jsonscan.MembersAt(whole, 0); m.Next(); {
		starts, spans = append(starts, len(all)), append(spans, m.Value)
		all = append(all, jsonscan.Text(m.Raw(), "token")...)
	}
	at := bytes.LastIndex(all, []byte(text))
	if at < 0 || len(spans) == 0 {
		return nil
	}
	first, exact := slices.BinarySearch(starts, at)
	if !exact {
		return nil
	}
	last := len(spans) - 1
	if end := at + len(text); end < len(all) {
		if last, exact = slices.BinarySearch(starts, end); !exact {
			return nil
		}
		last--
	}
	return whole[spans[first].Start:spans[last].End]
}
