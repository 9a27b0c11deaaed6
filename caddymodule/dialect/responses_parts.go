package dialect

import (
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// readParts reads content: a string, or a list of parts.
func (c *responsesCall) readParts(f fieldList, name string) []contentPart {
	return c.readContent(f, name, "a string or an array", c.readPart)
}

// readPart reads one part of content.
func (c *responsesCall) readPart(f fieldList) contentPart {
	text := "text"
	switch kind := f.text("type"); kind {
	case "refusal":
		text = "refusal"
	case "input_text", "output_text", "text":
	case "input_image":
		return c.readInputImage(f)
	case "input_file":
		return c.readInputFile(f)
	case "input_audio":
		return c.readInputAudio(f)
	case "":
		c.missing("type")
		return contentPart{}
	default:
		c.fault("type", "Content of type '%s' is not supported by this deployment.", show(kind))
		return contentPart{}
	}
	raw := c.typed(f, text, aString)
	if raw == nil {
		c.missing(text)
	}
	return contentPart{text: jsonscan.String(raw)}
}

// readInputAudio reads an audio part.
func (c *responsesCall) readInputAudio(f fieldList) contentPart {
	const name = "input_audio"
	audio := f.given(name)
	if !jsonscan.IsObject(audio) {
		c.missing(name)
		return contentPart{}
	}
	if path, found := findRemote(audio, inMedia); found && c.env.Options.RemoteMedia != compat.RemoteAllow {
		c.badValue(name+path, noRemoteMedia)
	}
	raw := append([]byte(`{"type":"input_audio","input_audio":`), compactJSON(audio)...)
	return contentPart{raw: append(raw, '}')}
}

// readInputImage reads an image. Its address is passed to the upstream if the deployment
// allows it. The gateway never fetches it.
func (c *responsesCall) readInputImage(f fieldList) contentPart {
	address := f.text("image_url")
	if address == "" {
		address = jsonscan.Text(f.given("image_url"), "url")
	}
	switch {
	case address != "":
		c.checkAddress("image_url", address)
	case f.given("file_id") != nil:
		c.fault("file_id", "Files are not supported by this deployment; send the image in image_url.")
	default:
		c.missing("image_url")
	}
	details := map[string]string{"auto": "auto", "low": "low", "high": "high", "original": "high"}
	return imagePart(address, details[f.text("detail")])
}

// readInputFile reads a file. Files other than text require that the model server supports
// them.
func (c *responsesCall) readInputFile(f fieldList) contentPart {
	data := f.text("file_data")
	for _, name := range [...]string{"file_id", "file_url"} {
		if f.given(name) != nil && f.given("file_data") == nil {
			c.fault(name, "%s is not supported by this deployment; send the file's text.", name)
		}
	}
	if data == "" {
		c.missing("file_data")
	}
	media, text, ok := dataURL(data)
	name := f.text("filename")
	switch {
	case !ok:
		c.fault("file_data", "The file_data is not a data URL: data:text/plain;base64,….")
	case strings.HasPrefix(media, "text/"):
		return contentPart{text: documentText(name, text)}
	case c.env.Options.FileParts:
		return filePart(name, media, data)
	default:
		c.fault("file_data", "Files of type %s are not supported by this deployment.", show(media))
	}
	return contentPart{}
}

// dataURL parses a data URL (RFC 2397). It returns the media type, in lower case without
// parameters, and the data.
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
	// Padding is optional.
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(data, "="))
	return media, string(raw), err == nil
}
