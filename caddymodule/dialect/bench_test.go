package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// requestOf returns a chat request of about size bytes. Its model comes last, and most of it is long
// strings, as in real requests.
func requestOf(size int) []byte {
	piece := 2 << 10
	if size > 1<<20 {
		piece = 1 << 20 // an image
	}
	text := strings.Repeat("The quick brown fox jumps over the lazy dog, says she. ", piece/55)
	var b bytes.Buffer
	b.WriteString(`{"temperature":0.7,"stream":true,"messages":[{"role":"system","content":"You help."}`)
	for b.Len() < size {
		fmt.Fprintf(&b, `,{"role":"user","content":"line one\n%s"}`, text)
	}
	b.WriteString(`],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object",` +
		`"properties":{"a":{"type":"string"}}}}}],"model":"llama3.2:3b"}`)
	return b.Bytes()
}

func BenchmarkScanRequest(b *testing.B) {
	for _, size := range []int{1 << 10, 49 << 10, 32 << 20} {
		body := requestOf(size)
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				r, err := scanRequest(chatOp, body, "")
				if err != nil || r.Body("up").Len() < int64(size) {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("%dKiB/encoding_json.Valid", size>>10), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if !json.Valid(body) {
					b.Fatal("invalid")
				}
			}
		})
	}
}

// BenchmarkChatStream measures one event of a stream: a token of llama.cpp.
func BenchmarkChatStream(b *testing.B) {
	token := `{"choices":[{"finish_reason":null,"index":0,"delta":{"content":" token"}}],"created":1790000000,` +
		`"id":"chatcmpl-abcdefghijklmnopqrstuvwxyz012345","model":"model.gguf","system_fingerprint":"b7000-abcdef",` +
		`"object":"chat.completion.chunk"}`
	call := `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function",` +
		`"function":{"name":"f","arguments":"{\"a\":1}"}}]}}],"model":"m","usage":null,"error":null}`
	ollama := strings.TrimSuffix(call, "}") + `,"system_fingerprint":"fp_ollama"}`
	for _, bb := range []struct {
		name, data string
		o          ChatStreamOptions
	}{
		{"token", token, ChatStreamOptions{Model: "llama3.2:3b"}},
		{"tool_call_and_nulls", call, ChatStreamOptions{Model: "llama3.2:3b"}},
		{"tool_call_repaired", ollama, ChatStreamOptions{Model: "llama3.2:3b"}},
		{
			"300KiB", strings.Replace(token, " token", strings.Repeat("x", 300<<10), 1),
			ChatStreamOptions{Model: "llama3.2:3b"},
		},
	} {
		b.Run(bb.name, func(b *testing.B) {
			piece := []byte(eventsOf(bb.data))
			b.SetBytes(int64(len(piece)))
			b.ReportAllocs()
			s := NewChatStream(bb.o)
			for b.Loop() {
				if len(s.Feed(piece)) == 0 {
					b.Fatal("no event")
				}
			}
		})
	}
}

func BenchmarkRewriteCompletion(b *testing.B) {
	body := []byte(`{"id":"c1","object":"chat.completion","created":1790000000,"model":"model.gguf",` +
		`"choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("Hello there. ", 80) +
		`"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":7}}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := rewriteCompletion(body, "llama3.2:3b", nil); err != nil {
			b.Fatal(err)
		}
	}
}
