package dialect

import (
	"bytes"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

const (
	aFile = "Content-Disposition: form-data; name=\"file\"; filename=\"a\\\"b.wav\"\r\n" +
		"Content-Type: audio/wav\r\n\r\nRIFF\x00\r\n--\xff"
	aModel = "Content-Disposition: form-data; name=\"model\"\r\n\r\nm"
)

// asForm returns a form of parts with the boundary B, without white space.
func asForm(parts ...string) string {
	return "--B\r\n" + strings.Join(parts, "\r\n--B\r\n") + "\r\n--B--\r\n"
}

// readForm reads a form in pieces of n bytes, and returns its call.
func readForm(t testing.TB, body, contentType, defaultModel string, n int) (Call, *Form, *Error) {
	t.Helper()
	op := Operation{Kind: Transcription, Dialect: Chat}
	form, err := FormOf(op, http.Header{"Content-Type": {contentType}})
	if err != nil {
		return nil, nil, err
	}
	if form == nil {
		t.Fatalf("%s is not a form", contentType)
	}
	all := []byte(body)
	for i := 0; i < len(all); i += n {
		if err := form.Read(all[:min(i+n, len(all))]); err != nil {
			return nil, form, err
		}
	}
	head, err := ReadHead(op, all, &Env{Form: form, DefaultModel: defaultModel})
	if err != nil {
		return nil, form, err
	}
	call, err := head.Decode(compat.Options{})
	return call, form, err
}

// The value of the part model is replaced wherever it stands. Everything else stays, byte by byte.
func TestForms(t *testing.T) {
	other := "Content-Disposition: form-data; name=\"prompt\"\r\n\r\nname=\"model\"\r\n\r\nx"
	for name, body := range map[string]string{
		"last": asForm(aFile, other, aModel), "first": asForm(aModel, aFile), "alone": asForm(aModel),
		"other headers":    asForm(aFile, "content-type: text/plain\r\ncontent-disposition:form-data; name=model\r\n\r\nm"),
		"no last line end": strings.TrimSuffix(asForm(aModel, aFile), "\r\n"),
		"empty part":       asForm("Content-Disposition: form-data; name=\"language\"\r\n\r\n", aModel),
	} {
		for _, n := range []int{1, 7, len(body)} {
			call, _, err := readForm(t, body, `multipart/form-data; boundary=B`, "", n)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			got, _ := io.ReadAll(call.Body("server/M:1"))
			want := strings.Replace(body, "\r\n\r\nm\r\n", "\r\n\r\nserver/M:1\r\n", 1)
			if string(got) != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
	body := asForm(aFile)
	call, _, err := readForm(t, body, `multipart/form-data; boundary="B"`, "m", len(body))
	if err != nil {
		t.Fatal(err)
	}
	got, _ := io.ReadAll(call.Body("x"))
	if want := asForm(strings.TrimSuffix(aModel, "m")+"x", aFile); string(got) != want {
		t.Errorf("with a default model: %q, want %q", got, want)
	}
}

// A form is refused if it names no model, or if a model server could read another one in it.
func TestBadForms(t *testing.T) {
	const header = "Content-Disposition: form-data; name="
	longest := strings.Repeat("b", 70)
	for name, test := range map[string]struct{ contentType, body, want string }{
		"no model":       {"", asForm(aFile), "Missing required parameter: model"},
		"empty model":    {"", asForm(strings.TrimSuffix(aModel, "m")), "Missing required parameter: model"},
		"two models":     {"", asForm(aModel, aModel), "duplicated"},
		"file as model":  {"", asForm(header + "\"model\"; filename=\"m\"\r\n\r\nm"), "without a file name"},
		"encoded model":  {"", asForm(header + "\"model\"\r\nContent-Transfer-Encoding: base64\r\n\r\nbQ=="), "encoding"},
		"case":           {"", asForm(header + "\"Model\"\r\n\r\nm"), `did you mean "model"`},
		"field before":   {"", aModel + "\r\n" + asForm(aModel), "begin with its boundary"},
		"field after":    {"", asForm(aModel) + aModel, "continues after"},
		"no end":         {"", strings.TrimSuffix(asForm(aModel, aFile), "--\r\n"), "last boundary is missing"},
		"cut":            {"", asForm(aModel, aFile)[:80], "last boundary is missing"},
		"half a line":    {"", strings.TrimSuffix(asForm(aModel), "\n"), "last boundary is missing"},
		"empty":          {"", "", "last boundary is missing"},
		"line feeds":     {"", strings.ReplaceAll(asForm(aModel), "\r\n", "\n"), "inside a part"},
		"inner boundary": {"", asForm(aModel, header+"\"x\"\r\n\r\na\n--B\r\n"+header+"\"model\"\r\n\r\nn"), "inside a part"},
		"no value":       {"", "--B\r\n" + header + "\"x\"\r\n\r\n--B\r\n" + aModel + "\r\n--B--", "inside a part"},
		"longer":         {"", asForm(aModel, header+"\"x\"\r\n\r\na\r\n--BC"), "inside a part"},
		"no name":        {"", asForm("Content-Disposition: form-data\r\n\r\nm"), "header of a part"},
		"two headers":    {"", asForm(header + "\"a\"\r\n" + aModel), "header of a part"},
		"encoded name":   {"", asForm(header + "\"model\"; name*=utf-8''x\r\n\r\nm"), "header of a part"},
		"name in a file": {
			"", asForm(header+"\"x\"; filename=\"a\\\"; name=\\\"model\"\r\n\r\nn", aModel), "header of a part",
		},
		"folded":         {"", asForm("Content-Disposition: form-data;\r\n name=\"model\"\r\n\r\nm"), "header of a part"},
		"long header":    {"", asForm("X: " + strings.Repeat("x", maxPartHeader) + "\r\n" + aModel), "longer than 8 KiB"},
		"remote image":   {"", asForm(aModel, header+"\"image[]\"\r\n\r\nhttp://10.0.0.1/"), "Invalid value for image[]"},
		"boundary":       {"multipart/form-data; boundary=" + longest + "b", "", "1 to 70 characters"},
		"no boundary":    {"multipart/form-data", "", "1 to 70 characters"},
		"mixed":          {"multipart/mixed; boundary=B", asForm(aModel), "multipart/form-data"},
		"routing":        {"", asForm(aModel, header+"\"API_BASE\"\r\n\r\nx"), "Unsupported parameter: api_base"},
		"array of names": {"", asForm(aModel, header+"\"model[]\"\r\n\r\nn"), `did you mean "model"`},
		"split name":     {"", asForm(aModel, header+"\"x=model\"\r\n\r\nn"), "header of a part"},
		"another file":   {"", asForm(header + "\"model\"; x=\"; filename=a\"\r\n\r\nm"), "header of a part"},
		"name in case":   {"", asForm("Content-Disposition: form-data; NAME=model\r\n\r\nm"), "header of a part"},
		"control": {
			"", asForm(header+"\"x\"\r\n\x0bContent-Disposition: form-data; name=model\r\n\r\nn", aModel), "header of a part",
		},
		"cut boundary": {"multipart/form-data; boundary=\"B;C\"", "", "1 to 70 characters"},
	} {
		contentType := test.contentType
		if contentType == "" {
			contentType = "multipart/form-data; boundary=B"
		}
		_, _, err := readForm(t, test.body, contentType, "", 5)
		if err == nil || err.Kind != KindInvalidRequest || !strings.Contains(err.Message, test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	body := strings.ReplaceAll(asForm(aModel), "--B", "--"+longest)
	if _, _, err := readForm(t, body, "multipart/form-data; boundary="+longest, "", 1); err != nil {
		t.Error(err)
	}
}

// Starlette decodes the names of parts by the charset, and cpp-httplib takes the first boundary of any parameter: the
// model server gets the boundary alone.
func TestFormContentType(t *testing.T) {
	for got, want := range map[string]string{
		"multipart/form-data; charset=utf-7; boundary=B":        "multipart/form-data; boundary=B",
		`Multipart/Form-Data; x="boundary=C"; boundary="B"`:     "multipart/form-data; boundary=B",
		`multipart/form-data; boundary="a:b"`:                   `multipart/form-data; boundary="a:b"`,
		"multipart/form-data; boundary=----WebKitFormBoundaryA": "multipart/form-data; boundary=----WebKitFormBoundaryA",
	} {
		form, err := FormOf(Operation{Kind: Transcription}, http.Header{"Content-Type": {got}})
		if call := (&MediaCall{form: form}); err != nil || call.ContentType() != want {
			t.Errorf("%s: %v", got, err)
		}
	}
}

// The model is known before the file has arrived, if it stands in front of that.
func TestModelBeforeFile(t *testing.T) {
	body := []byte(asForm(aModel, aFile))
	form, _ := FormOf(Operation{Kind: ImageEdit}, http.Header{"Content-Type": {"multipart/form-data; boundary=B"}})
	before, _, _ := bytes.Cut(body, []byte("filename"))
	if err := form.Read(before); err != nil || form.Model() != "m" {
		t.Errorf("%q, %v", form.Model(), err)
	}
}

// formRows are forms that arrive in small pieces.
var formRows = []boundedRow{
	{name: "parts of a form", work: readInPieces, input: func(n int) string {
		parts := make([]string, n, n+1)
		for i := range parts {
			parts[i] = fmt.Sprintf("Content-Disposition: form-data; name=\"f%d\"\r\n\r\n%d", i, i)
		}
		return asForm(append(parts, aModel)...)
	}},
	{name: "almost boundaries", work: readInPieces, input: func(n int) string {
		return asForm(aModel, aFile+strings.Repeat("\r\n--", 16*n))
	}},
	{name: "nested images", maximum: jsonscan.MaxDepth/4 - 2, work: readImages, input: func(n int) string {
		nested := strings.Repeat(`"AA",`, 1000*n) + `0` + strings.Repeat("]", n)
		return `{"model":"m","image":` + strings.Repeat("[", n) + nested + "}"
	}},
}

// readImages reads a body in JSON.
func readImages(body []byte) (any, *Error) {
	return ReadHead(Operation{Kind: ImageEdit, Dialect: Chat}, body, &Env{})
}

// readInPieces reads a form in pieces of 100 bytes.
func readInPieces(body []byte) (any, *Error) {
	form, err := FormOf(Operation{Kind: ImageEdit}, http.Header{"Content-Type": {"multipart/form-data; boundary=B"}})
	for i := 0; err == nil && i < len(body); i += 100 {
		err = form.Read(body[:i])
	}
	if err == nil {
		err = form.finish(body, "")
	}
	return form, err
}

// What a form accepts, mime/multipart reads in the same way, before and after the model was replaced.
func FuzzForm(f *testing.F) {
	for _, parts := range [][]string{{aModel, aFile}, {aFile, aModel}, {aFile}, {aModel, aModel}} {
		f.Add([]byte(asForm(parts...)), uint8(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, n uint8) {
		call, form, err := readForm(t, string(body), "multipart/form-data; boundary=B", "default", int(n)+1)
		whole, _, derr := readForm(t, string(body), "multipart/form-data; boundary=B", "default", len(body)+1)
		if (err == nil) != (derr == nil) {
			t.Fatalf("in pieces: %v, whole: %v", err, derr)
		}
		if err != nil {
			return
		}
		before, model := partsOf(t, body)
		if model != "" && model != form.Model() || form.Model() == "" {
			t.Fatalf("the model is %q, but mime/multipart reads %q", form.Model(), model)
		}
		changed, _ := io.ReadAll(whole.Body("M"))
		after, replaced := partsOf(t, changed)
		if replaced != "M" || after != before {
			t.Fatalf("%q became %q, with the model %q", before, after, replaced)
		}
		if got, _ := io.ReadAll(call.Body("M")); !bytes.Equal(got, changed) {
			t.Fatal("the pieces matter")
		}
	})
}

// partsOf returns the parts of a form without the model, and the model, as mime/multipart reads them.
func partsOf(t *testing.T, body []byte) (all, model string) {
	t.Helper()
	for r := multipart.NewReader(bytes.NewReader(body), "B"); ; {
		p, err := r.NextRawPart()
		if err == io.EOF {
			return all, model
		}
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		value, err := io.ReadAll(p)
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if p.FormName() == "model" && model == "" {
			model = string(value)
			continue
		}
		all += fmt.Sprintf("%v %q %q %q\n", p.Header, p.FormName(), p.FileName(), value)
	}
}
