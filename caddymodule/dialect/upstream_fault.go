package dialect

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"golang.org/x/net/html"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/connector/window"
)

// maxMessage is the maximum size of an upstream's text in a message, in bytes.
const maxMessage = 2 << 10

// fault is the content of an upstream's error body, independent of its format.
type fault struct {
	message string // cleaned, "" if there is none
	kind    string // its "type"
	code    string // its "code", if that is a string
	status  int    // its "code", if that is a number
	prompt  int64  // tokens of the refused prompt, if a refusal names them
	window  int64  // tokens of the context window, if a refusal names them
}

// readFault reads an error body.
func readFault(body []byte) fault {
	const maxBody = 1 << 20 // enough for any real error
	var f fault
	f.read(bytes.TrimSpace(body[:min(len(body), maxBody)]), 0)
	f.message = plainMessage(f.message)
	if f.window == 0 {
		f.prompt, f.window = window.Refusal(f.message)
	}
	return f
}

// read reads one level of a known error body:
//
//	{"error":{"message","type","code":"…" or 400}}       OpenAI, vLLM, Ollama, llama.cpp
//	{"error":"text"}                                     Ollama's own API, LM Studio
//	{"object":"error","message":…,"code":400}            older vLLM, SGLang
//	{"detail":"text"} {"detail":[{"loc":[…],"msg":…}]}   FastAPI
//	{"error":"code","message":"text"}, also as "detail"  sd-server, Kokoro
//
// Some servers nest a whole body as the string "message".
func (f *fault) read(data []byte, level int) {
	const deepest = 4
	if level == deepest || !jsonscan.IsObject(data) || !jsonscan.Valid(data) {
		f.message = string(data)
		return
	}
	var nested [3][]byte // error, message and detail
	for m := jsonscan.Checked(data); m.Next(); {
		raw := m.Raw()
		text := truncate(jsonscan.String(raw), 64)
		n, isInteger := jsonscan.Integer(raw)
		switch name := strings.ToLower(string(m.Name())); {
		case name == "error":
			nested[0] = raw
		case name == "message":
			nested[1] = raw
		case name == "detail":
			nested[2] = raw
		case name == "type" && text != "":
			f.kind = text
		case name == "code" && text != "":
			f.code = text
		case name == "code" && isInteger:
			f.status = int(n)
		case name == "n_prompt_tokens":
			f.prompt = window.Tokens(raw)
		case name == "n_ctx":
			f.window = window.Tokens(raw)
		}
	}
	if bytes.HasPrefix(nested[0], []byte(`"`)) && jsonscan.IsFilled(nested[1]) { // the error is only a code
		nested[0], nested[1] = nested[1], nested[0]
	}
	for _, raw := range nested {
		if !jsonscan.IsFilled(raw) {
			continue
		}
		switch raw[0] {
		case '{':
			f.read(raw, level+1)
		case '[':
			f.message = details(raw)
		default: // a string
			f.read([]byte(strings.TrimSpace(jsonscan.Unquote(raw))), level+1)
		}
		if f.message != "" {
			return
		}
	}
	if level == 0 && !jsonscan.IsFilled(nested[0]) { // JSON of unknown format
		f.message = string(data)
	}
}

// details joins the entries of FastAPI's "detail" with their locations.
func details(raw []byte) string {
	const maxEntries = 5
	var list []struct {
		Loc []any  `json:"loc"`
		Msg string `json:"msg"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return string(raw)
	}
	var b strings.Builder
	for i, entry := range list[:min(len(list), maxEntries)] {
		if i > 0 {
			b.WriteString("; ")
		}
		for k, part := range entry.Loc {
			if k > 0 {
				b.WriteByte('.')
			}
			text, _ := json.Marshal(part)
			b.WriteString(strings.Trim(string(text), `"`))
		}
		if len(entry.Loc) > 0 {
			b.WriteString(": ")
		}
		b.WriteString(entry.Msg)
	}
	return b.String()
}

// htmlMark detects HTML.
var htmlMark = regexp.MustCompile(`(?i)<(!doctype|html|head|body|title|h[1-6]|p|pre|center|div)\b`)

// plainMessage converts an upstream's text to valid UTF-8 without HTML, of at most
// maxMessage bytes.
func plainMessage(text string) string {
	const maxHTML = 64 << 10 // bytes of HTML that are parsed
	text = strings.ToValidUTF8(truncate(text, maxHTML), "\uFFFD")
	if htmlMark.MatchString(text) {
		text = strings.Join(strings.Fields(htmlText(text)), " ")
	}
	return truncate(strings.TrimSpace(text), maxMessage)
}

// htmlText returns the text of HTML. Tags, comments, scripts and styles become spaces.
func htmlText(page string) string {
	var b strings.Builder
	z := html.NewTokenizer(strings.NewReader(page))
	for isText := true; ; {
		kind := z.Next()
		switch {
		case kind == html.ErrorToken:
			return b.String()
		case kind == html.TextToken && isText:
			b.Write(z.Text())
		case kind != html.TextToken:
			b.WriteByte(' ')
			name, _ := z.TagName()
			isText = kind != html.StartTagToken || string(name) != "script" && string(name) != "style"
		}
	}
}
