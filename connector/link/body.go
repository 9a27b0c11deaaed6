package link

import "io"

// content reads the body of a message: a number of bytes, or chunks.
type content struct {
	in      *reader
	chunked bool
	goesOn  bool  // the stream goes on after the message
	toEnd   bool  // the body is all that comes, and left has no meaning
	started bool  // a chunk has begun
	left    int64 // bytes of the body, or of the chunk
}

// read reads the next bytes of the body. It asks the stream once at most, and
// not at all when it has bytes to return: an event passes as soon as it is
// there. io.EOF is the end of the message, and nothing else is; it may come
// together with the last bytes.
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

// ahead reports whether next will not have to wait for the stream.
func (c *content) ahead() bool {
	if !c.chunked {
		return c.goesOn || c.in.err != nil
	}
	size, used, err := parseChunk(c.in.buffered(), false, c.in.extras)
	return err != nil || used > 0 && (size > 0 || c.goesOn || c.in.err != nil)
}

// next goes on to the next chunk, or finds the end of the message: io.EOF.
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
