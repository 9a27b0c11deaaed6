package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/link/blocks"
)

// readWhole reads a body of blocks into memory, since a reference to an unknown block may come anywhere: until then, no
// upstream may have got a byte of the request.
func (up *upload) readWhole() error {
	body, ok := up.body.(*blocks.Decoder)
	if !ok {
		return nil
	}
	if up.reserved.Grow(up.left) != nil {
		return link.ErrBusy
	}
	data := make([]byte, up.left+1) // the last read, of no bytes, needs space for one
	n, err := io.ReadFull(body, data)
	switch {
	case errors.Is(err, blocks.ErrUnknownBlock):
		return link.ErrUnknownBlock // the gateway sends it again
	case errors.Is(err, blocks.ErrMalformed):
		return fmt.Errorf("%w: %w", link.ErrInternal, err)
	case err != io.EOF && err != io.ErrUnexpectedEOF:
		return link.ErrCancelled
	}
	up.body = bytes.NewReader(data[:n])
	return nil
}
