package dialect

import (
	"io"
	"strings"
	"testing"
)

// longHistory is a list of turns of a coding agent, about n bytes in all.
func longHistory(turn string, n int) string {
	turns := make([]string, 1+n/len(turn))
	for i := range turns {
		turns[i] = turn
	}
	return strings.Join(turns, ",")
}

// BenchmarkDecode reads a request of a long conversation and writes the upstream's body.
func BenchmarkDecode(b *testing.B) {
	const size = 1 << 20
	text := quoted(strings.Repeat("a line of some file\n\t\"quoted\"\n", 60))
	image := `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` +
		strings.Repeat("iVBO", size/4) + `"}}`
	turn := useA + "," + userSays(result("a", `"content":`+text)) + "," +
		assistantSays(`{"type":"text","text":`+text+`}`) + "," + saying("user", "go on")
	items := itemReason + "," + itemCallA + "," + itemOutput("a", text) + "," +
		itemMessage("assistant", `{"type":"output_text","text":`+text+`}`) + "," + itemU
	for _, c := range []struct {
		name, body string
		op         Operation
	}{
		{"messages", `{"model":"public","max_tokens":9,"messages":[` + longHistory(turn, size) + `]}`, messagesOp},
		{"image", `{"model":"public","max_tokens":9,"messages":[` + userSays(image) + `]}`, messagesOp},
		{"responses", `{"model":"public","input":[` + longHistory(items, size) + `]}`, responsesOp},
	} {
		b.Run(c.name, func(b *testing.B) {
			body := []byte(c.body)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			env := testEnv()
			for b.Loop() {
				r, fault := Decode(c.op, body, env)
				if fault != nil {
					b.Fatal(fault.Message)
				}
				if _, err := io.Copy(io.Discard, r.Body("up")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
