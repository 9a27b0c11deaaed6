package link

import (
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Limits of the head of a message. Usual limits are 8 KiB to 64 KiB and some 100 fields.
const (
	maxHead   = 64 << 10 // bytes
	MaxFields = 256
	// MaxAnswerHead is the limit of a model server's answer in bytes. The tunnel adds fields.
	MaxAnswerHead = maxHead - 1<<10
)

// head is a parsed message head without its first line.
type head struct {
	header  http.Header
	host    string
	length  int64 // Content-Length; -1: none
	chunked bool
	events  bool // the transfer coding "events", before chunked
}

// Malformed returns an ErrMalformed with details. These must not contain bytes of the
// message, which may be secret.
func Malformed(what string) error {
	return fmt.Errorf("%w: %s", ErrMalformed, what)
}

// parseFields parses header lines, up to the empty line at the end, strictly by RFC 9112
// §5: a bare CR or LF, folded lines and space before the colon are errors.
func parseFields(lines string) (head, error) {
	n := strings.Count(lines, "\r\n") - 1
	if n > MaxFields {
		return head{}, Malformed(fmt.Sprintf("the head has over %d fields", MaxFields))
	}
	n = max(n, 0)
	h := head{header: make(http.Header, n), length: -1}
	values := make([]string, n) // one allocation for the values of all fields
	for lines != "\r\n" {
		line, rest, ok := strings.Cut(lines, "\r\n")
		if !ok || rest == "" {
			return h, Malformed("a header line does not end in CRLF")
		}
		lines = rest
		name, value, ok := strings.Cut(line, ":")
		if !ok || !httpguts.ValidHeaderFieldName(name) {
			return h, Malformed("a header line has no valid name")
		}
		name, value = textproto.CanonicalMIMEHeaderKey(name), strings.Trim(value, " \t")
		if !httpguts.ValidHeaderFieldValue(value) {
			return h, Malformed("a header value has control characters")
		}
		if err := h.framing(name, value); err != nil {
			return h, err
		}
		if name == "Host" || name == "Transfer-Encoding" {
			continue // kept outside of the header, as in net/http
		}
		if had := h.header[name]; had != nil {
			h.header[name] = append(had, value)
			continue
		}
		values[0] = value
		h.header[name], values = values[:1:1], values[1:]
	}
	if h.chunked && h.length >= 0 {
		return h, Malformed("Content-Length and Transfer-Encoding") // RFC 9112 §6.3
	}
	return h, nil
}

// framing records the fields for the length and the host of the message.
func (h *head) framing(name, value string) error {
	switch name {
	case "Host":
		if h.host != "" || value == "" {
			return Malformed("Host is empty or repeated")
		}
		h.host = value
	case "Content-Length":
		n, ok := parseLength(value)
		if !ok || h.length >= 0 {
			return Malformed("Content-Length is invalid or repeated")
		}
		h.length = n
	case "Transfer-Encoding":
		h.events = value == codingEvents
		if h.chunked || !h.events && !strings.EqualFold(value, "chunked") {
			return Malformed("Transfer-Encoding is not chunked")
		}
		h.chunked = true
	}
	return nil
}

// parseLength parses a Content-Length: digits only, RFC 9110 §8.6.
func parseLength(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 60)
	return int64(n), err == nil
}

// parseRequest parses a request's head, from the first line to the empty one.
func parseRequest(text string) (*http.Request, head, error) {
	line, rest, _ := strings.Cut(text, "\r\n")
	method, line, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(line, " ")
	if !httpguts.ValidHeaderFieldName(method) || !isTarget(target) || version != "HTTP/1.1" {
		return nil, head{}, Malformed("request line")
	}
	h, err := parseFields(rest)
	if err != nil {
		return nil, head{}, err
	}
	if h.events {
		return nil, head{}, Malformed("Transfer-Encoding is not chunked")
	}
	if CheckUpstream(h.host) != nil {
		return nil, head{}, Malformed("Host is not the name of an upstream")
	}
	u, err := parseTarget(target)
	if err != nil {
		return nil, head{}, err
	}
	return &http.Request{
		Method:     method,
		URL:        u,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     h.header,
		Host:       h.host,
		RequestURI: target,
	}, h, nil
}

// parseTarget converts a request target to a URL. Most targets have no escapes and need no
// parser.
func parseTarget(target string) (*url.URL, error) {
	path, query, _ := strings.Cut(target, "?")
	if !strings.Contains(path, "%") {
		return &url.URL{Path: path, RawQuery: query}, nil
	}
	unescaped, err := url.PathUnescape(path)
	if err != nil {
		return nil, Malformed("request target")
	}
	// RawPath keeps the spelling: "%2F" is not "/".
	return &url.URL{Path: unescaped, RawPath: path, RawQuery: query}, nil
}

// parseResponse parses a response's head into r, from the status line to the empty line.
// It returns false for an informational response.
func parseResponse(text string, r *http.Response) (head, bool, error) {
	line, rest, _ := strings.Cut(text, "\r\n")
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	status, ok := strings.CutPrefix(line, "HTTP/1.1 ")
	if !ok || len(status) < 3 || len(status) > 3 && status[3] != ' ' || !httpguts.ValidHeaderFieldValue(status) {
		return head{}, false, Malformed("status line")
	}
	code, err := strconv.ParseUint(status[:3], 10, 16)
	if err != nil || code < 100 || code == http.StatusSwitchingProtocols {
		return head{}, false, Malformed("status code")
	}
	h, err := parseFields(rest)
	if err != nil {
		return head{}, false, err
	}
	r.Status, r.StatusCode = status, int(code)
	r.Header = h.header
	return h, code >= 200, nil
}
