package bodies

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzDecode: whatever a gateway sends, the connector does not fail, keeps to its bounds, and passes on no more than
// the length of the body.
func FuzzDecode(f *testing.F) {
	base := strings.Repeat("a conversation. ", 2000)
	sent := func(tunnel *Tunnel, body string) (field string, wire []byte) {
		s := Encode(request(body), tunnel, "key")
		s.End(true)
		wire, _ = io.ReadAll(s.Body)
		return s.Header.Get(Field), wire
	}
	gateway := NewCache(bound(1 << 20)).NewTunnel(1 << 20)
	whole, first := sent(gateway, base)
	f.Add(whole, first)
	for _, body := range []string{base + "The end.", "Another one: " + base, base[:20_000], text(1, 70_000)} {
		field, wire := sent(gateway, body)
		f.Add(field, wire)
	}
	f.Add(`{"length":1,"number":18446744073709551615,"base":{"number":1,"length":32000,"crc32c":1,"begin":-1}}`, []byte{})
	f.Add(`{"length":9223372036854775807,"number":1}`, first[:20])
	f.Fuzz(func(t *testing.T, field string, wire []byte) {
		const limit = 1 << 20
		e := newEnds(t, limit, limit)
		receive := func(field string, wire []byte) {
			r := &http.Request{Header: http.Header{Field: {field}}, Body: io.NopCloser(bytes.NewReader(wire))}
			if Decode(r, e.connector) != nil {
				return
			}
			n, err := io.Copy(io.Discard, io.LimitReader(r.Body, 8<<20))
			if n > r.ContentLength || err == nil && n < min(r.ContentLength, 8<<20) {
				t.Errorf("%d bytes of %d, %v", n, r.ContentLength, err)
			}
			_ = r.Body.Close()
		}
		receive(whole, first)
		receive(field, wire)
		if c := e.connector.cache; c.size > limit || c.size < 0 {
			t.Errorf("%d bytes are kept", c.size)
		}
	})
}
