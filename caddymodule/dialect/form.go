package dialect

import (
	"bytes"
	"cmp"
	"mime"
	"net/http"
	"net/textproto"
	"regexp"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// maxPartHeader is the maximum size of the header of a part, in bytes.
const maxPartHeader = 8 << 10

// Form finds the model in a multipart body (RFC 7578) while the body arrives. It is strict where parsers differ, so
// that no model server finds another model than the gateway: the boundary stands only between parts, and nothing stands
// before the first part or after the last one.
type Form struct {
	boundary  string
	delimiter []byte // two hyphens and the boundary
	at        int    // after the last delimiter, 0 before the first one
	searched  int    // no delimiter begins between at and here
	ended     bool   // the last delimiter was the last one of the form
	model     *jsonscan.Span
	name      string // the model, "" while it is unknown
	remote    string // the first part whose value may be the address of media, or ""
	routing   string // of routingNames, or ""
}

// formPart is what the header of a part says.
type formPart struct {
	name    string
	hasFile bool // it has a file name
	isPlain bool // it has no Content-Transfer-Encoding
}

// Simple parsers cut names and boundaries at some signs, decode others, or undo no quotes. The first is from RFC 2046
// §5.1.1.
var (
	validBoundary = regexp.MustCompile(`^[\w'()+,./:=?-]{1,70}$`)
	validPartName = regexp.MustCompile(`^[\w.[\]-]+$`)
)

// FormOf returns a form for the body of a media operation, nil for other operations and Content-Types.
func FormOf(op Operation, h http.Header) (*Form, *Error) {
	if !isMedia(op.Kind) {
		return nil, nil
	}
	value := h.Get("Content-Type")
	if !strings.HasPrefix(strings.ToLower(value), "multipart/") {
		return nil, nil
	}
	mediaType, params, err := mime.ParseMediaType(value)
	boundary := params["boundary"]
	if err != nil || mediaType != formType || !validBoundary.MatchString(boundary) || len(h["Content-Type"]) != 1 {
		return nil, invalidForm("its Content-Type must be multipart/form-data with a boundary of 1 to 70 characters")
	}
	return &Form{boundary: boundary, delimiter: []byte("--" + boundary)}, nil
}

const formType = "multipart/form-data"

// contentType returns the Content-Type for the model server. Its only parameter is the boundary: by a charset, some
// servers would read other names of parts, and a simple parser takes the boundary from another parameter.
func (f *Form) contentType() string {
	return mime.FormatMediaType(formType, map[string]string{"boundary": f.boundary})
}

// Model returns the name of the model, "" while the form has not read it.
func (f *Form) Model() string {
	if f == nil {
		return ""
	}
	return f.name
}

// Read reads the parts that have arrived since the last call. body is the body so far.
func (f *Form) Read(body []byte) *Error {
	for !f.ended {
		i := bytes.Index(body[f.searched:], f.delimiter)
		if i < 0 {
			f.searched = max(f.searched, len(body)-len(f.delimiter)+1)
			return nil
		}
		start := f.searched + i
		next := start + len(f.delimiter)
		if len(body) < next+2 {
			return nil
		}
		follows := string(body[next : next+2])
		if f.ended = follows == "--"; !f.ended && follows != "\r\n" {
			return invalidForm("its boundary appears inside a part")
		}
		if err := f.readPart(body, start); err != nil {
			return err
		}
		f.at, f.searched = next, next
	}
	if rest := body[f.at+2:]; len(rest) > 2 || !strings.HasPrefix("\r\n", string(rest)) {
		return invalidForm("it continues after its last boundary")
	}
	return nil
}

// readPart reads the part between the last delimiter and the next one.
func (f *Form) readPart(body []byte, end int) *Error {
	const headerEnd = "\r\n\r\n"
	switch {
	case f.at == 0 && end > 0:
		return invalidForm("it must begin with its boundary")
	case f.at == 0:
		return nil
	}
	raw := body[f.at+2 : end]
	i := bytes.Index(raw[:min(len(raw), maxPartHeader)], []byte(headerEnd))
	if i < 0 && len(raw) >= maxPartHeader {
		return invalidForm("the header of a part is longer than 8 KiB")
	}
	if i < 0 || !bytes.HasSuffix(raw[i+len(headerEnd):], []byte("\r\n")) {
		return invalidForm("its boundary appears inside a part")
	}
	part, ok := readPartHeader(raw[:i])
	if !ok {
		return invalidForm("the header of a part is invalid: it needs one Content-Disposition, form-data with a name")
	}
	span := jsonscan.Span{Start: f.at + 2 + i + len(headerEnd), End: end - len("\r\n")}
	value := span.Bytes(body)
	field, _, _ := strings.Cut(part.name, "[") // of an array, or an object
	f.routing = cmp.Or(f.routing, routingName([]byte(field)))
	if f.remote == "" && !part.hasFile && isMediaField([]byte(field)) && isRemoteText(value) {
		f.remote = part.name
	}
	if !strings.EqualFold(field, "model") {
		return nil
	}
	switch {
	case part.name != "model":
		return invalid("model", "unsupported_parameter", "Unknown parameter %q: did you mean %q?", show(part.name), "model")
	case f.model != nil:
		return invalid("model", "", "The part %q is duplicated in the form. Send it once.", "model")
	case part.hasFile || !part.isPlain:
		return invalid("model", "", "The part %q must be plain text, without a file name or encoding.", "model")
	}
	f.model, f.name = &span, string(value)
	return nil
}

// readPartHeader reads the header of a part.
func readPartHeader(header []byte) (part formPart, ok bool) {
	h := make(map[string]string)
	for line := range strings.SplitSeq(string(header), "\r\n") {
		name, value, found := strings.Cut(line, ":")
		key := textproto.CanonicalMIMEHeaderKey(name)
		if _, again := h[key]; !found || again || !httpguts.ValidHeaderFieldName(name) ||
			!httpguts.ValidHeaderFieldValue(value) {
			return part, false
		}
		h[key] = strings.TrimSpace(value)
	}
	value := h["Content-Disposition"]
	disposition, params, err := mime.ParseMediaType(value)
	name := params["name"]
	_, hasFile := params["filename"]
	delete(params, "name")
	delete(params, "filename")
	if err != nil || disposition != "form-data" || !validPartName.MatchString(name) || len(params) > 0 ||
		hasOtherName(value) {
		return part, false
	}
	_, encoded := h["Content-Transfer-Encoding"]
	return formPart{name, hasFile, !encoded}, true
}

// hasOtherName reports whether a simple parser may find another name in a Content-Disposition: an encoded one, one
// within the name of a file, or none because of its case.
func hasOtherName(disposition string) bool {
	lower := strings.ToLower(disposition)
	names := strings.Count(lower, "name=")
	return names != 1+strings.Count(lower, "filename=") || names != strings.Count(disposition, "name=") ||
		strings.Count(lower, "name*") != strings.Count(lower, "filename*")
}

// finish reads the whole body. A form without a model is for the default.
func (f *Form) finish(body []byte, defaultModel string) *Error {
	if err := f.Read(body); err != nil {
		return err
	}
	switch {
	case !f.ended || len(body) == f.at+3: // of the last line end, too
		return invalidForm("its last boundary is missing, so it may be incomplete")
	case f.at == len(f.delimiter):
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
		first := len(f.delimiter) + 2
		const part = "Content-Disposition: form-data; name=\"model\"\r\n\r\n"
		e.add(first, first, []byte(part+model+"\r\n"+string(f.delimiter)+"\r\n"))
	}
	return e.segments(body)
}

// invalidForm returns the error for a multipart body.
func invalidForm(problem string) *Error {
	return invalid("", "invalid_form", "The request body is not a valid multipart form: %s.", problem)
}
