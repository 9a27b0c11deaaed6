package tokens

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color/palette"
	"image/gif"
	"image/jpeg"
	"image/png"
	"strings"
	"testing"
)

// picture returns an image file of a size in pixels.
func picture(t *testing.T, format string, width, height int) []byte {
	t.Helper()
	img := image.NewPaletted(image.Rect(0, 0, width, height), palette.Plan9)
	var b bytes.Buffer
	var err error
	switch format {
	case "png":
		err = png.Encode(&b, img)
	case "gif":
		err = gif.Encode(&b, img, nil)
	case "jpeg":
		err = jpeg.Encode(&b, img, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestImageTokens(t *testing.T) {
	webp := func(chunk, rest string) []byte {
		return []byte("RIFF\x00\x00\x00\x00WEBP" + chunk + "\x00\x00\x00\x00" + rest + strings.Repeat("\x00", 20))
	}
	tests := []struct {
		name string
		file []byte
		want int
	}{
		{"png", picture(t, "png", 300, 200), 80},
		{"gif", picture(t, "gif", 300, 200), 80},
		{"jpeg", picture(t, "jpeg", 300, 200), 80},
		{"tiny", picture(t, "png", 1, 1), 1},
		{"large", picture(t, "png", 3000, 2000), 1600},
		{"webp, lossy", webp("VP8 ", "\x00\x00\x00\x9d\x01\x2a\x2c\x01\xc8\x00"), 80},
		{"webp, lossless", webp("VP8L", "\x2f\x2b\xc1\x31\x00"), 80},
		{"webp, extended", webp("VP8X", "\x00\x00\x00\x00\x2b\x01\x00\xc7\x00\x00"), 80},
		{"cut off", picture(t, "png", 300, 200)[:20], 1000},
		{"something else", []byte("hello"), 1000},
		{"nothing", nil, 1000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := `"data:image/x;base64,` + base64.StdEncoding.EncodeToString(tt.file) + `"`
			if got := imageTokens([]byte(url)); got != tt.want {
				t.Errorf("%d tokens, want %d", got, tt.want)
			}
		})
	}
	for _, url := range []string{
		`"data:image/png,abc"`, `"data:image/png;base64,!!"`, `"https://example.com/a.png"`,
		`null`, ``, `""`,
	} {
		if got := imageTokens([]byte(url)); got != tokensOfUnknownImage {
			t.Errorf("%s: %d tokens", url, got)
		}
	}
}

// Only the first images of a prompt are measured. A request may have 100,000 small ones, which take
// longer to measure than their size suggests.
func TestManyImages(t *testing.T) {
	count := func(n int) int {
		image := `{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,/9j/4AAQSkZJRgABAQ"}}`
		prompt := promptFrom([]byte(`[{"role":"user","content":[`+strings.Repeat(image+",", n-1)+image+`]}]`), nil)
		return NewCounter().Estimate(testKey, prompt).Tokens
	}
	tokens := count(10 * maxMeasured)
	if want := 10 * maxMeasured * tokensOfUnknownImage; tokens < want || tokens > want+100 {
		t.Errorf("%d tokens, want %d", tokens, want)
	}
	if n := testing.AllocsPerRun(1, func() { count(10 * maxMeasured) }); n > 20*maxMeasured {
		t.Errorf("%v allocations", n)
	}
}
