package link

import "io"

// content reads the body of a message, with a known length or chunked.
type content struct {
	in      *reader
	chunked bool
	goesOn  bool  // the stream continues after the message
	toEnd   bool  // the body ends with the stream, and left is unused
	started bool  // the first chunk was read
	left    int64 // remaining bytes of the body or the chunk
}

// read reads the next bytes of the body. It reads the stream at most once, and not at all
// if bytes are buffered, so that events are not delayed. It returns io.EOF only at the end
// of the message, possibly with the last bytes.
func (c *content) read(p []byte) (n int, err error) {
	for n < len(p) {
		if c.left == 0 {
			if n > 0 && !c.ahead() {
				return n, nil
			}
			if err := c.next(); err != nil {
				return n, err
			}
			continue
		}
		if n > 0 && len(c.in.buffered()) == 0 {
			return n, nil
		}
		m, err := c.in.read(p[n:min(int64(len(p)), int64(n)+c.left)])
		c.left -= int64(m)
		n += m
		if err == io.EOF && !c.toEnd {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// ahead reports whether next can proceed without reading from the stream.
func (c *content) ahead() bool {
	if !c.chunked {
		return c.goesOn || c.in.err != nil
	}
	size, used, err := parseChunk(c.in.buffered(), false, c.in.extras)
	return err != nil || used > 0 && (size > 0 || c.goesOn || c.in.err != nil)
}

// next advances to the next chunk. It returns io.EOF at the end of the message.
func (c *content) next() error {
	if c.chunked {
		size, err := c.in.chunk(!c.started)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil || size > 0 {
			c.started, c.left = true, size
			return err
		}
	}
	if c.goesOn {
		return io.EOF
	}
	if err := c.in.end(); err != nil {
		return err
	}
	return io.EOF
}
