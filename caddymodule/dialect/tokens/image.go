package tokens

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

const (
	tokensOfUnknownImage = 1000
	tokensOfLargeImage   = 1600 // servers scale down larger images
	pixelsPerToken       = 750
)

// imageTokens estimates the tokens of an image. raw is its URL, a JSON string. The size is
// only known for a data URL.
func imageTokens(raw []byte) int {
	if !jsonscan.IsString(raw) || !bytes.HasPrefix(raw[1:], []byte("data:")) {
		return tokensOfUnknownImage
	}
	_, data, ok := bytes.Cut(raw[1:len(raw)-1], []byte(";base64,"))
	if !ok {
		return tokensOfUnknownImage
	}
	width, height, ok := imageSize(data)
	if !ok {
		return tokensOfUnknownImage
	}
	// In float64, because the product of the declared sizes may overflow.
	tokens := (float64(width)*float64(height) + pixelsPerToken - 1) / pixelsPerToken
	return int(min(tokens, tokensOfLargeImage))
}

// maxImageHeader is the maximum number of bytes to search for the size of an image. In a
// JPEG file, a preview may precede it.
const maxImageHeader = 256 << 10

// imageSize reads the size in pixels from the header of an image in base64.
func imageSize(data []byte) (width, height int, ok bool) {
	open := func() io.Reader {
		return io.LimitReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(data)), maxImageHeader)
	}
	var head [32]byte
	n, _ := io.ReadFull(open(), head[:]) // imageSize fails below for a short file
	var decode func(io.Reader) (image.Config, error)
	switch head := head[:n]; {
	case bytes.HasPrefix(head, []byte("\x89PNG")):
		decode = png.DecodeConfig
	case bytes.HasPrefix(head, []byte("GIF8")):
		decode = gif.DecodeConfig
	case bytes.HasPrefix(head, []byte("\xff\xd8")):
		decode = jpeg.DecodeConfig
	default:
		return webPSize(head)
	}
	config, err := decode(open())
	return config.Width, config.Height, err == nil
}

// webPSize reads the size from the first 32 bytes of a WebP file in any of the three
// formats (RFC 9649 §2.5-2.7).
func webPSize(b []byte) (width, height int, ok bool) {
	if len(b) < 30 || string(b[:4]) != "RIFF" || string(b[8:12]) != "WEBP" {
		return 0, 0, false
	}
	switch string(b[12:16]) {
	case "VP8 ":
		return int(binary.LittleEndian.Uint16(b[26:]) & 0x3fff), int(binary.LittleEndian.Uint16(b[28:]) & 0x3fff), true
	case "VP8L":
		bits := binary.LittleEndian.Uint32(b[21:])
		return int(bits&0x3fff) + 1, int(bits>>14&0x3fff) + 1, true
	case "VP8X":
		return uint24(b[24:]) + 1, uint24(b[27:]) + 1, true
	}
	return 0, 0, false
}

// uint24 reads a little-endian 24-bit integer.
func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
