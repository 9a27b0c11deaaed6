package dialect

import (
	"io"
	"strconv"
	"testing"
	"time"
)

// testEnv returns an environment with ids that are numbered.
func testEnv() *Env {
	n := 0
	return &Env{
		Now:          func() time.Time { return time.Unix(1700000000, 0) },
		NewID:        func(prefix string) string { n++; return prefix + strconv.Itoa(n) },
		RequestID:    "req_1",
		SignatureKey: []byte("a key for tests"),
		Sealer:       testSealer,
	}
}

// testSealer is the sealer of all requests of tests.
var testSealer = func() *Sealer {
	s, err := NewSealer([]byte("a key for tests"))
	if err != nil {
		panic(err)
	}
	return s
}()

// sealed returns a text as the gateway seals it for the account of testEnv.
func sealed(mark, text string) string {
	return string((&Env{Sealer: testSealer}).seal(nil, mark, []byte(text)))
}

// decodeCase reads a request in a dialect.
func decodeCase(t *testing.T, d Dialect, body string) Call {
	t.Helper()
	kind := map[Dialect]OperationKind{Chat: ChatCompletions, Messages: CreateMessage, Responses: CreateResponse}[d]
	c, err := Decode(Operation{Kind: kind, Dialect: d}, []byte(body), testEnv())
	if err != nil {
		t.Fatalf("%s\n%s", err.Message, body)
	}
	return c
}

// upstreamBody returns the upstream's body for a request.
func upstreamBody(t *testing.T, c Call) string {
	t.Helper()
	b, err := io.ReadAll(c.Body("up"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// messagesBody is a request in the messages dialect with further members.
func messagesBody(members string) string {
	return `{"model":"public","max_tokens":10,"stream":true,` + members + `}`
}

// responsesBody is a request in the responses dialect with further members.
func responsesBody(members string) string {
	return `{"model":"public","stream":true,` + members + `}`
}
