package main

import (
	"bytes"
	"fmt"

	"github.com/postern-dev/postern/tests/upstream/play"
)

// The model's public name, which clients use, and its name at the upstream
// behind Postern. The upstream answers with whichever name it was asked for, so
// that a client must see the public one in every case.
const (
	publicModel = "bench"
	localModel  = "bench-local-8b"
)

// requestBody returns a chat request for the script, with padding bytes of
// prompt before it.
func requestBody(s play.Script, streamed bool, padding int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"model":"%s",`, publicModel)
	if streamed {
		b.WriteString(`"stream":true,"stream_options":{"include_usage":true},`)
	}
	b.WriteString(`"temperature":0.7,"max_tokens":512,"messages":[{"role":"system","content":"You are a helpful assistant. Answer in one short paragraph."},{"role":"user","content":"`)
	for b.Len() < padding {
		b.WriteString("Das ist ein längerer Prompt. ")
	}
	b.WriteString(s.String())
	b.WriteString(`"}]}`)
	return b.Bytes()
}

// A task is a request and its right answer.
type task struct{ request, want []byte }

// smallAnswer is a whole answer of about 1 KB.
var smallAnswer = play.Script{Tokens: 1, Bulk: 720}

// smallTask asks for a completion of 1 KB.
func smallTask() task {
	return task{requestBody(smallAnswer, false, 0), smallAnswer.AppendCompletion(nil, publicModel)}
}

// bulkPrompt is a request of bulkBytes, and bulkAnswer one with an answer of as
// many, which is streamed as fast as it goes.
func bulkPrompt() task {
	return task{requestBody(smallAnswer, false, bulkBytes), smallAnswer.AppendCompletion(nil, publicModel)}
}

func bulkAnswer() task {
	two, one := play.Script{Tokens: 2}.AppendStream(nil, publicModel), play.Script{Tokens: 1}.AppendStream(nil, publicModel)
	s := play.Script{Tokens: bulkBytes / (len(two) - len(one))}
	return task{requestBody(s, true, 0), s.AppendStream(nil, publicModel)}
}
