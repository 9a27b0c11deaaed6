package link

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"

	"github.com/postern-dev/postern/connector/text"
)

const (
	// maxControl bounds one control message in bytes. The largest hello fits, even if each
	// character of its names is escaped.
	maxControl = 352 << 10
	// maxParts bounds the fields and elements of a message: a "{}," takes some twenty
	// times as much memory as on the wire. The largest hello contains some 1,290 parts.
	maxParts = 4096
	// uncounted is the size in bytes up to which a message is read without accounting.
	uncounted = 4 << 10
)

// ErrOversized is returned by [Control.Receive], with [ErrMalformed], for a message above
// the limits.
var ErrOversized = errors.New("larger than a control message may be")

// ErrUnknownMessage is returned by [Control.Receive] for an unknown type of message, such as
// one of a newer program. The next message can still be received.
var ErrUnknownMessage = errors.New("unknown control message")

// Control sends and receives control messages. Send is safe for concurrent use; Receive
// must be called from one goroutine at a time.
type Control struct {
	rw io.ReadWriter
	mu sync.Mutex // serializes sends
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
	frame, err := encode(m)
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

// Receive reads the next message. All errors except [ErrUnknownMessage] are final.
func (c *Control) Receive() (Message, error) {
	return c.ReceiveCounted(func(int) error { return nil })
}

// ReceiveCounted is [Control.Receive] for unauthenticated connections. Before it allocates more than a
// few KiB for the message, it calls take with the number of further bytes. It returns an error of take.
func (c *Control) ReceiveCounted(take func(bytes int) error) (Message, error) {
	var header [4]byte
	if _, err := io.ReadFull(c.rw, header[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(header[:])
	if size > maxControl {
		return nil, fmt.Errorf("receiving control message: %w: %w: %d bytes are over the limit of %d", ErrMalformed,
			ErrOversized, size, maxControl)
	}
	frame, err := readFrame(c.rw, int(size), take)
	if err != nil {
		return nil, err
	}
	return decode(frame)
}

// readFrame reads size bytes. It allocates memory as data arrives, not by the announced
// length.
func readFrame(r io.Reader, size int, take func(bytes int) error) ([]byte, error) {
	frame := make([]byte, min(size, uncounted))
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
	body, err := plainJSON(envelope{m.kind(), data})
	if err != nil {
		return nil, err
	}
	if len(body) > maxControl {
		return nil, fmt.Errorf("its %d bytes are over the limit of %d", len(body), maxControl)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	return append(frame, body...), nil
}

// plainJSON is json.Marshal without escaping for HTML, which takes six bytes for a "<".
func plainJSON(v any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// decode returns the message in a frame. The data of a message without fields is ignored.
func decode(frame []byte) (Message, error) {
	var e envelope
	if err := json.Unmarshal(frame, &e); err != nil {
		return nil, fmt.Errorf("receiving control message: %w: not the expected JSON", ErrMalformed)
	}
	t, ok := types[e.Type]
	if !ok {
		return nil, fmt.Errorf("receiving control message: %w %q", ErrUnknownMessage, text.Short(e.Type))
	}
	m := reflect.New(t)
	if len(e.Data) > 0 && t.NumField() > 0 {
		if parts(e.Data) > maxParts {
			return nil, fmt.Errorf("receiving %s message: %w: %w: it has more than %d parts", e.Type, ErrMalformed,
				ErrOversized, maxParts)
		}
		// The text of a JSON error may quote its input, and a hello contains a secret.
		if err := json.Unmarshal(e.Data, m.Interface()); err != nil {
			return nil, fmt.Errorf("receiving %s message: %w: its fields are not of the expected types", e.Type, ErrMalformed)
		}
	}
	return m.Elem().Interface().(Message), nil
}

// parts counts the commas between the fields and elements of a valid JSON text.
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
