package link

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	// maxControl bounds one control message in bytes. The largest hello fits: as
	// many upstreams and routes as there may be, of the longest names, each
	// character of which has to be escaped.
	maxControl = 320 << 10
	// maxParts bounds the fields and elements of one: in memory "{}," is some
	// twenty times what it is on the wire. The largest hello has some 1,030.
	maxParts = 4096
	// believed is how much of a message is taken without asking who counts.
	believed = 4 << 10
)

// ErrOversized is what [Control.Receive] returns, with [ErrMalformed], for a
// message that is larger than any may be.
var ErrOversized = errors.New("larger than a control message may be")

// ErrUnknownMessage is what [Control.Receive] returns for a type of message
// that a newer peer may know. The next message can be received all the same.
var ErrUnknownMessage = errors.New("unknown control message")

// Control sends and receives control messages. One goroutine may receive while
// any number send.
type Control struct {
	rw io.ReadWriter
	mu sync.Mutex // serialises sends
}

// NewControl returns the control channel over rw, the control stream.
func NewControl(rw io.ReadWriter) *Control {
	return &Control{rw: rw}
}

// envelope is a message on the wire.
type envelope struct {
	Type string          `json:"type"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Send writes one message, in one Write.
func (c *Control) Send(m Message) error {
	var frame []byte
	var err error
	aside(func() { frame, err = encode(m) })
	if err != nil {
		return fmt.Errorf("sending %s message: %w", m.kind(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.rw.Write(frame); err != nil {
		return fmt.Errorf("sending %s message: %w", m.kind(), err)
	}
	return nil
}

// Receive reads the next message. After io.EOF, ErrMalformed or an error of
// the stream, none can follow; after [ErrUnknownMessage] the next one can be
// read.
func (c *Control) Receive() (Message, error) {
	return c.ReceiveCounted(func(int) error { return nil })
}

// ReceiveCounted is [Control.Receive] from an unauthenticated peer: take is called before
// more than a few KiB are spent on the message, with how many bytes more. Its error
// ends the reading, and is returned.
func (c *Control) ReceiveCounted(take func(bytes int) error) (Message, error) {
	var header [4]byte
	if _, err := io.ReadFull(c.rw, header[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if size > maxControl {
		return nil, fmt.Errorf("receiving control message: %w: %w: %d bytes are over the limit of %d", ErrMalformed, ErrOversized, size, maxControl)
	}
	frame, err := readFrame(c.rw, int(size), take)
	if err != nil {
		return nil, err
	}
	var m Message
	aside(func() { m, err = decode(frame) })
	return m, err
}

// aside runs f on another goroutine and waits for it. JSON takes more stack
// than waiting for the next message does, and a stack that has grown that far
// does not shrink again: with thousands of tunnels that adds up.
func aside(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// readFrame reads size bytes. Memory grows with what really arrives, so that a
// length alone cannot claim it.
func readFrame(r io.Reader, size int, take func(bytes int) error) ([]byte, error) {
	frame := make([]byte, min(size, believed))
	for read := 0; ; {
		n, err := io.ReadFull(r, frame[read:])
		if read += n; err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if read == size {
			return frame, nil
		}
		more := min(read, size-read)
		if err := take(more); err != nil {
			return nil, err
		}
		frame = append(make([]byte, 0, read+more), frame...)[:read+more]
	}
}

// encode returns the frame of a message.
func encode(m Message) ([]byte, error) {
	data, err := plainJSON(m)
	if err != nil {
		return nil, err
	}
	if string(data) == "{}" {
		data = nil
	}
	text, err := plainJSON(envelope{m.kind(), data})
	if err != nil {
		return nil, err
	}
	if len(text) > maxControl {
		return nil, fmt.Errorf("its %d bytes are over the limit of %d", len(text), maxControl)
	}
	frame := make([]byte, 4, 4+len(text))
	binary.BigEndian.PutUint32(frame, uint32(len(text)))
	return append(frame, text...), nil
}

// plainJSON is json.Marshal without what is for web pages: it would write six
// bytes for a "<".
func plainJSON(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// decode returns the message in a frame.
func decode(text []byte) (Message, error) {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, fmt.Errorf("receiving control message: %w: not the expected JSON", ErrMalformed)
	}
	decode := decoders[e.Type]
	if decode == nil {
		return nil, fmt.Errorf("receiving control message: %w %q", ErrUnknownMessage, short(e.Type))
	}
	return decode(e)
}

// decoders are the messages by type. The data of one without fields is ignored.
var decoders = map[string]func(envelope) (Message, error){
	"hello": decodeAs[Hello], "welcome": decodeAs[Welcome], "deny": decodeAs[Deny], "pending": decodeAs[Pending], "grant": decodeAs[Grant],
	"update": decodeAs[Update], "updated": decodeAs[Updated], "report": decodeAs[Report], "rotate": decodeAs[Rotate], "rotated": decodeAs[Rotated],
	"ping": empty[Ping], "pong": decodeAs[Pong], "drain": empty[Drain], "drain_ok": empty[DrainOK], "drained": empty[Drained],
}

func empty[M Message](envelope) (Message, error) { return *new(M), nil }

func decodeAs[M Message](e envelope) (Message, error) {
	var m M
	if len(e.Data) == 0 {
		return m, nil
	}
	if parts(e.Data) > maxParts {
		return nil, fmt.Errorf("receiving %s message: %w: %w: it has more than %d parts", e.Type, ErrMalformed, ErrOversized, maxParts)
	}
	// The text of a JSON error may quote its input, and a hello has a secret.
	if err := json.Unmarshal(e.Data, &m); err != nil {
		return nil, fmt.Errorf("receiving %s message: %w: its fields are not of the expected types", e.Type, ErrMalformed)
	}
	return m, nil
}

// parts counts the commas between the fields and elements of a JSON text, which
// is valid.
func parts(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			n++
		}
	}
	return n
}
