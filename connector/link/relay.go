package link

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/panics"
)

// RelayHeader is the header of a request that a peer relays to a connector. The peer decides whether the
// client gets a permit. A text has at most 255 bytes.
type RelayHeader struct {
	Connector string // id; "": the request is for the peer itself
	Owner     string // of the key
	Key       string // id
	// Wait is how long the request may wait for a permit; 0: not at all. If it is set, the request
	// follows only after the peer has confirmed the permit: see [AwaitPermit].
	Wait time.Duration
}

// append appends the header, or nothing if there is no connector.
func (t RelayHeader) append(b []byte) []byte {
	if t.Connector == "" {
		return b
	}
	for _, text := range [...]string{t.Connector, t.Owner, t.Key} {
		b = append(append(b, byte(len(text))), text...)
	}
	wait := min(t.Wait, math.MaxUint32*time.Millisecond) + time.Millisecond - 1 // rounded up: 0 would not be answered
	return binary.BigEndian.AppendUint32(b, uint32(wait/time.Millisecond))
}

// ReadRelayHeader reads the header of a request of a peer. The request follows.
func ReadRelayHeader(s Stream) (header RelayHeader, err error) {
	var buf [255]byte
	read := func(n int) []byte {
		if err == nil {
			_, err = io.ReadFull(s, buf[:n])
		}
		return buf[:n]
	}
	text := func() string { return string(read(int(read(1)[0]))) }
	if header.Connector = text(); header.Connector != "" {
		header.Owner, header.Key = text(), text()
		header.Wait = time.Duration(binary.BigEndian.Uint32(read(4))) * time.Millisecond
	}
	if err != nil {
		return RelayHeader{}, fmt.Errorf("receiving a request of a peer: %w", streamError(context.Background(), err))
	}
	return header, nil
}

// AwaitPermit sends the header of a request on a new stream, and waits until the peer has a permit for
// it. RoundTrip then sends the request. After an error, the stream has ended.
func AwaitPermit(ctx context.Context, s Stream, header RelayHeader) error {
	stop := context.AfterFunc(ctx, func() {
		stopReading(s, CodeCancelled)
		s.CancelWrite(CodeCancelled.wire())
	})
	_, err := s.Write(header.append(nil))
	if err == nil {
		_, err = io.ReadFull(s, make([]byte, 1))
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		Refuse(s, CodeCancelled)
		return streamError(ctx, err)
	}
	return nil
}

// ConfirmPermit answers AwaitPermit. Its errors need no handling: the relay then fails, too.
func ConfirmPermit(s Stream) { _, _ = s.Write([]byte{0}) }

// Relay copies a request from a stream of a peer to one of a connector, and the answer back,
// with the codes of resets. It returns when both streams have ended.
func Relay(peer, connector Stream) {
	// The peer may cancel a request whose answer has not begun, or whose body is not read.
	stop := context.AfterFunc(peer.Context(), func() {
		stopReading(connector, CodeCancelled)
		connector.CancelWrite(CodeCancelled.wire())
	})
	p, c := end{peer, true}, end{connector, false}
	requested := make(chan *panics.Error, 1)
	go func() {
		defer func() { requested <- panics.Caught(recover()) }()
		forward(c, p)
	}()
	forward(p, c)
	stop()
	stopReading(peer, CodeNone) // the answer is complete: the rest of the request is not needed
	if p := <-requested; p != nil {
		panic(p)
	}
}

// end is a stream of a relay.
type end struct {
	Stream
	answer bool // an answer is written to it
}

// forward copies one direction, and ends both sides of it. The buffer is small until a read fills it,
// because thousands of event streams may run.
func forward(to, from end) {
	buf := getBuffer(smallBuffer)
	defer func() { buf.put() }()
	for {
		n, err := from.Read(buf.array)
		if n > 0 {
			if _, failed := to.Write(buf.array[:n]); failed != nil {
				stopReading(from, from.code(failed))
				to.CancelWrite(CodeNone.wire())
				return
			}
		}
		if n == smallBuffer {
			buf.put()
			buf = getBuffer(largeBuffer)
		}
		if err == io.EOF {
			_ = to.Close()
			return
		}
		if err != nil {
			to.CancelWrite(to.code(err).wire())
			from.CancelRead(CodeNone.wire())
			return
		}
	}
}

// code returns the code for a stream after an error of the stream at the other end of the relay.
func (e end) code(err error) Code {
	var reset *quic.StreamError
	switch {
	case errors.As(err, &reset):
		return Code(reset.ErrorCode)
	case e.answer && errors.Is(err, net.ErrClosed): // true for all connection errors of quic-go
		return CodeTunnelLost
	default:
		return CodeCancelled // as after the deadline of stopReading
	}
}
