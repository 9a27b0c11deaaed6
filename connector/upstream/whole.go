package upstream

import (
	"bytes"
	"io"

	"github.com/postern-dev/postern/connector/link/blocks"
)

// readWhole reads a body of blocks into memory, since a reference to an unknown block may come anywhere: until then, no
// upstream may have got a byte of the request.
func (up *upload) readWhole() error {
	body, ok := up.body.(*blocks.Decoder)
	if !ok {
		return nil
	}
	if err := up.reserved.Grow(up.left); err != nil {
		return err
	}
	data := make([]byte, up.left+1) // the last read, of no bytes, needs space for one
	n, err := io.ReadFull(body, data)
	if err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	up.body = bytes.NewReader(data[:n])
	return nil
}
