package dialect

import (
	"bytes"
	"mime"
	"net/http"
	"net/textproto"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// maxPartHeader is the maximum size of the header of a part, in bytes.
const maxPartHeader = 8 << 10

// Form finds the model in a multipart body (RFC 7578) while the body arrives. It is strict where parsers differ, so that
// no model server finds another model than the gateway: the boundary stands only between parts, and nothing stands
// before the first part or after the last one.
type Form struct {
	delimiter []byte // two hyphens and the boundary
	state     formState
	at        int // the first byte that was not read
	searched  int // no delimiter begins between at and here
	first     int // where the first part begins
	part      formPart
	model     *jsonscan.Span // nil: not found yet
	name      string         // the model
	remote    string         // the first part whose value may be the address of media, or ""
}

// formState is what a form reads next.
type formState uint8

const (
	formStart  formState = iota // the first delimiter
	formNext                    // what follows a delimiter: a part, or the end
	formHeader                  // the header of a part
	formValue                   // the value of a part, and the delimiter after it
	formEnd                     // nothing
)

// formPart is the part that is read.
type formPart struct {
	name    string
	hasFile bool // it has a file name
	isPlain bool // it has no Content-Transfer-Encoding
}

// FormOf returns a form for the body of a media operation, nil for other operations and Content-Types.
func FormOf(op Operation, h http.Header) (*Form, *Error) {
	if !isMedia(op.Kind) {
		return nil, nil
	}
	value := h.Get("Content-Type")
	if !strings.HasPrefix(strings.ToLower(value), "multipart/") {
		return nil, nil
	}
	const longest = 70 // RFC 2046 §5.1.1
	mediaType, params, err := mime.ParseMediaType(value)
	boundary := params["boundary"]
	if err != nil || mediaType != "multipart/form-data" || boundary == "" || len(boundary) > longest ||
		len(h["Content-Type"]) != 1 {
		return nil, invalidForm("its Content-Type must be multipart/form-data with a boundary of 1 to 70 characters")
	}
	return &Form{delimiter: []byte("--" + boundary)}, nil
}

// Model returns the name of the model, "" while the form has not read it.
func (f *Form) Model() string {
	if f == nil {
		return ""
	}
	return f.name
}

// Read reads on. body is the body as far as it has arrived.
func (f *Form) Read(body []byte) *Error {
	for {
		before, state := f.at, f.state
		if err := f.step(body); err != nil {
			return err
		}
		if f.at == before && f.state == state {
			return nil
		}
	}
}

// step reads the next element of the body, if it has arrived.
func (f *Form) step(body []byte) *Error {
	rest := body[f.at:]
	switch f.state {
	case formStart:
		return f.start(rest)
	case formNext:
		return f.next(rest)
	case formHeader:
		return f.header(rest)
	case formValue:
		return f.value(body)
	}
	if len(rest) > 0 && !strings.HasPrefix("\r\n", string(rest[:min(len(rest), 3)])) {
		return invalidForm("it continues after its last boundary")
	}
	return nil
}

// start reads the first delimiter.
func (f *Form) start(rest []byte) *Error {
	n := min(len(rest), len(f.delimiter))
	switch {
	case !bytes.Equal(rest[:n], f.delimiter[:n]):
		return invalidForm("it must begin with its boundary")
	case n == len(f.delimiter):
		f.at, f.state = n, formNext
	}
	return nil
}

// next reads what follows a delimiter.
func (f *Form) next(rest []byte) *Error {
	switch {
	case len(rest) < 2:
	case rest[0] == '-' && rest[1] == '-':
		f.at, f.state = f.at+2, formEnd
	case rest[0] == '\r' && rest[1] == '\n':
		f.at, f.state = f.at+2, formHeader
		if f.first == 0 {
			f.first = f.at
		}
	default:
		return invalidForm("its boundary stands within a part")
	}
	return nil
}

// header reads the header of a part.
func (f *Form) header(rest []byte) *Error {
	const end = "\r\n\r\n"
	i := bytes.Index(rest[:min(len(rest), maxPartHeader)], []byte(end))
	switch {
	case i < 0 && len(rest) >= maxPartHeader:
		return invalidForm("the header of a part is longer than 8 KiB")
	case i < 0:
		return nil
	}
	part, ok := readPartHeader(rest[:i+len(end)])
	if !ok {
		return invalidForm("the header of a part is not valid: it needs one Content-Disposition, form-data with a name")
	}
	if strings.EqualFold(part.name, "model") {
		switch {
		case part.name != "model":
			return invalid("model", "unsupported_parameter", "Unknown parameter %q: did you mean %q?", show(part.name), "model")
		case f.model != nil:
			return invalid("model", "", "The part %q is duplicated in the form. Send it once.", "model")
		case part.hasFile || !part.isPlain:
			return invalid("model", "", "The part %q must be a text without a file name or an encoding.", "model")
		}
	}
	f.part, f.at, f.state = part, f.at+i+len(end), formValue
	f.searched = f.at
	return nil
}

// readPartHeader reads the header of a part with the empty line after it.
func readPartHeader(header []byte) (part formPart, ok bool) {
	h := make(map[string]string)
	for line := range strings.SplitSeq(strings.TrimSuffix(string(header), "\r\n\r\n"), "\r\n") {
		name, value, found := strings.Cut(line, ":")
		key := textproto.CanonicalMIMEHeaderKey(name)
		if _, again := h[key]; !found || again || name == "" || strings.ContainsAny(name, " \t") ||
			strings.ContainsAny(line, "\r\n\x00") {
			return part, false
		}
		h[key] = strings.TrimSpace(value)
	}
	disposition, params, err := mime.ParseMediaType(h["Content-Disposition"])
	name, named := params["name"]
	if err != nil || disposition != "form-data" || !named || hasOtherName(h["Content-Disposition"]) {
		return part, false
	}
	_, hasFile := params["filename"]
	_, encoded := h["Content-Transfer-Encoding"]
	return formPart{name, hasFile, !encoded}, true
}

// hasOtherName reports whether a simple parser may find another name in a Content-Disposition: an encoded one, or one
// within the name of a file.
func hasOtherName(disposition string) bool {
	disposition = strings.ToLower(disposition)
	return strings.Count(disposition, "name=") != 1+strings.Count(disposition, "filename=") ||
		strings.Count(disposition, "name*") != strings.Count(disposition, "filename*")
}

// value reads the value of a part up to the next delimiter.
func (f *Form) value(body []byte) *Error {
	i := bytes.Index(body[f.searched:], f.delimiter)
	if i < 0 {
		f.searched = max(f.searched, len(body)-len(f.delimiter)+1)
		return nil
	}
	end := f.searched + i - len("\r\n")
	if end < f.at || string(body[end:end+2]) != "\r\n" {
		return invalidForm("its boundary stands within a part")
	}
	value := jsonscan.Span{Start: f.at, End: end}
	if f.part.name == "model" {
		f.model, f.name = &value, string(body[f.at:end])
	}
	if name := f.part.name; f.remote == "" && !f.part.hasFile && isMediaField([]byte(strings.TrimSuffix(name, "[]"))) &&
		isRemoteText(value.Bytes(body)) {
		f.remote = name
	}
	f.at, f.state = f.searched+i+len(f.delimiter), formNext
	return nil
}

// finish reads the whole body. A form without a model is for the default.
func (f *Form) finish(body []byte, defaultModel string) *Error {
	if err := f.Read(body); err != nil {
		return err
	}
	switch {
	case f.state != formEnd:
		return invalidForm("its last boundary is missing, so a part of it may be, too")
	case f.first == 0:
		return invalidForm("it is empty")
	case f.name != "":
	case f.model != nil || defaultModel == "":
		return missing("model")
	default:
		f.name = defaultModel
	}
	return nil
}

// body returns the body with the model server's name of the model.
func (f *Form) body(body []byte, model string) *Segments {
	var e edits
	if f.model != nil {
		e.add(f.model.Start, f.model.End, []byte(model))
	} else { // as the first part
		const part = "Content-Disposition: form-data; name=\"model\"\r\n\r\n"
		e.add(f.first, f.first, []byte(part+model+"\r\n"+string(f.delimiter)+"\r\n"))
	}
	return e.segments(body)
}

// invalidForm returns the error for a multipart body.
func invalidForm(problem string) *Error {
	return invalid("", "invalid_form", "The request body is not a valid multipart form: %s.", problem)
}
