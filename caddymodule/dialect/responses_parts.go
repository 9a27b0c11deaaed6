package dialect

import (
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// readParts reads content: a string, or a list of parts.
func (c *responsesCall) readParts(content []byte, path *fieldPath) (parts []contentPart, err *Error) {
	if jsonscan.IsString(content) {
		return []contentPart{{text: jsonscan.Unquote(content)}}, nil
	}
	if content[0] != '[' {
		return nil, wrongType(path.String(), "a string or an array", content)
	}
	for list := c.objects(content); list.next(path, &err); {
		here := path.element(list.Index)
		var part contentPart
		part, err = c.readPart(readFields(list.Raw()), &here)
		parts = append(parts, part)
	}
	return parts, err
}

// readPart reads one part of content.
func (c *responsesCall) readPart(f fieldList, path *fieldPath) (contentPart, *Error) {
	text := "text"
	switch kind := f.text("type"); kind {
	case "refusal":
		text = "refusal"
	case "input_text", "output_text", "text":
	case "input_image":
		return c.readInputImage(f, path)
	case "input_file":
		return c.readInputFile(f, path)
	case "input_audio":
		audio := given(f, "input_audio")
		if audio == nil || audio[0] != '{' {
			return contentPart{}, missing(path.of("input_audio"))
		}
		if where, problem := sourceFault(audio, c.options.RemoteMedia); problem != "" {
			where = path.of("input_audio" + where)
			return contentPart{}, invalid(where, "", "Invalid value for %s: %s", where, problem)
		}
		raw := append([]byte(`{"type":"input_audio","input_audio":`), compactJSON(audio)...)
		return contentPart{raw: append(raw, '}')}, nil
	case "":
		return contentPart{}, missing(path.of("type"))
	default:
		return contentPart{}, invalid(path.of("type"), "", "Content of type '%s' is not supported by this deployment.", show(kind))
	}
	raw := given(f, text)
	if raw == nil {
		return contentPart{}, missing(path.of(text))
	}
	if !jsonscan.IsString(raw) {
		return contentPart{}, wrongType(path.of(text), "a string", raw)
	}
	return contentPart{text: jsonscan.Unquote(raw)}, nil
}

// readInputImage reads an image: its address goes up as it is, if the deployment
// allows it, and is never fetched here.
func (c *responsesCall) readInputImage(f fieldList, path *fieldPath) (contentPart, *Error) {
	address := f.text("image_url")
	if address == "" {
		address = jsonscan.Text(given(f, "image_url"), "url")
	}
	if address == "" {
		if given(f, "file_id") != nil {
			return contentPart{}, invalid(path.of("file_id"), "", "Files are not supported by this deployment; send the image in image_url.")
		}
		return contentPart{}, missing(path.of("image_url"))
	}
	if problem := remoteFault(address, c.options.RemoteMedia); problem != "" {
		where := path.of("image_url")
		return contentPart{}, invalid(where, "", "Invalid value for %s: %s", where, problem)
	}
	detail := f.text("detail")
	switch detail {
	case "auto", "low", "high":
	case "original":
		detail = "high"
	default:
		detail = ""
	}
	return imagePart(address, detail), nil
}

// readInputFile reads a file: text, or, if the model server takes files, any
// other kind too.
func (c *responsesCall) readInputFile(f fieldList, path *fieldPath) (contentPart, *Error) {
	for _, name := range [...]string{"file_id", "file_url"} {
		if given(f, name) != nil && given(f, "file_data") == nil {
			return contentPart{}, invalid(path.of(name), "", "%s is not supported by this deployment; send the file's text.", name)
		}
	}
	data := f.text("file_data")
	if data == "" {
		return contentPart{}, missing(path.of("file_data"))
	}
	media, text, ok := dataURL(data)
	if !ok {
		return contentPart{}, invalid(path.of("file_data"), "", "The file_data is not a data URL: data:text/plain;base64,….")
	}
	name := f.text("filename")
	switch {
	case strings.HasPrefix(media, "text/"):
		return contentPart{text: documentText(name, text)}, nil
	case c.options.FileParts:
		return filePart(fileName(name, media), data), nil
	default:
		return contentPart{}, invalid(path.of("file_data"), "", "Files of type %s are not supported by this deployment.", show(media))
	}
}

// dataURL reads a data URL (RFC 2397): its media type, in lower case and
// without parameters, and its data.
func dataURL(s string) (media, data string, ok bool) {
	head, data, ok := strings.Cut(s, ",")
	if !ok || len(head) < len("data:") || !strings.EqualFold(head[:len("data:")], "data:") {
		return "", "", false
	}
	head, encoded := strings.CutSuffix(head[len("data:"):], ";base64")
	media, _, _ = strings.Cut(head, ";")
	if media = strings.ToLower(strings.TrimSpace(media)); media == "" {
		media = "text/plain"
	}
	if !encoded {
		data, err := url.PathUnescape(data)
		return media, data, err == nil
	}
	// Encoders differ in whether they pad.
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(data, "="))
	return media, string(raw), err == nil
}
