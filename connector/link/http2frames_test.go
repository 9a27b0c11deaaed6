package link

import (
	"bytes"
	"io"
	"net"
	"testing"
	"testing/iotest"

	"golang.org/x/net/http2"
)

// readConn is a connection from which r can be read.
type readConn struct {
	net.Conn
	r      io.Reader
	closed bool
}

func (c *readConn) Read(p []byte) (int, error) { return c.r.Read(p) }
func (c *readConn) Close() error               { c.closed = true; return nil }

// TestFrameFilter: frames that package http2 would write a line about end the
// connection; all others go through, however they are cut.
func TestFrameFilter(t *testing.T) {
	for name, c := range map[string]struct {
		write func(f *http2.Framer)
		ok    bool
	}{
		"nothing": {func(*http2.Framer) {}, true},
		"a tunnel": {func(f *http2.Framer) {
			_ = f.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 14})
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("xyz"), EndHeaders: false})
			_ = f.WriteContinuation(1, true, []byte("x"))
			_ = f.WriteData(1, false, bytes.Repeat([]byte{2}, 1000))
			_ = f.WritePing(false, [8]byte{})
			_ = f.WriteWindowUpdate(1, 5)
			_ = f.WriteRSTStream(1, http2.ErrCodeCancel)
			_ = f.WriteGoAway(1, http2.ErrCodeNo, nil)
		}, true},
		"no settings": {func(f *http2.Framer) { _ = f.WritePing(false, [8]byte{}) }, false},
		"priority": {func(f *http2.Framer) {
			_ = f.WriteSettings()
			_ = f.WritePriority(1, http2.PriorityParam{})
		}, false},
		"push": {func(f *http2.Framer) {
			_ = f.WriteSettings()
			_ = f.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, EndHeaders: true})
		}, false},
		"unknown": {func(f *http2.Framer) {
			_ = f.WriteSettings()
			_ = f.WriteRawFrame(0xbe, 0, 0, []byte("x"))
		}, false},
	} {
		var wire bytes.Buffer
		c.write(http2.NewFramer(&wire, nil))
		for way, r := range map[string]io.Reader{
			"at once":        bytes.NewReader(wire.Bytes()),
			"byte by byte":   iotest.OneByteReader(bytes.NewReader(wire.Bytes())),
			"with its end":   iotest.DataErrReader(bytes.NewReader(wire.Bytes())),
			"half by halves": iotest.HalfReader(bytes.NewReader(wire.Bytes())),
		} {
			raw := &readConn{r: r}
			got, err := io.ReadAll(&frameFilter{Conn: raw})
			if ok := err == nil; ok != c.ok || raw.closed == c.ok {
				t.Errorf("%s, %s: %v, closed: %v", name, way, err, raw.closed)
			}
			if c.ok && !bytes.Equal(got, wire.Bytes()) {
				t.Errorf("%s, %s: the bytes were changed", name, way)
			}
		}
	}
}

func BenchmarkFrameFilter(b *testing.B) {
	var wire bytes.Buffer
	f := http2.NewFramer(&wire, nil)
	_ = f.WriteSettings()
	for range 10 {
		_ = f.WriteData(1, false, make([]byte, 16<<10))
	}
	filter := &frameFilter{}
	b.SetBytes(int64(wire.Len()))
	for b.Loop() {
		if err := filter.check(wire.Bytes()); err != nil {
			b.Fatal(err)
		}
	}
}
