package serve

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// client is the client of an exchange. It notes silence, and events of a stream that
// were not flushed.
type client struct {
	header  http.Header
	status  int
	body    strings.Builder
	pending bool // of a stream, since the last Flush
	last    time.Time
}

func (c *client) Header() http.Header { return c.header }

func (c *client) WriteHeader(status int) {
	if c.status != 0 {
		c.body.WriteString("<<second header>>")
	}
	c.status, c.last = status, time.Now()
}

func (c *client) Write(p []byte) (int, error) {
	if c.pending {
		c.body.WriteString("<<not flushed>>")
	}
	if silence := time.Since(c.last); silence > 0 {
		fmt.Fprintf(&c.body, "<<after %v>>", silence)
	}
	c.last, c.pending = time.Now(), c.header.Get("Content-Type") == "text/event-stream"
	return c.body.Write(p)
}

func (c *client) Flush() { c.pending = false }

// String returns the answer as the client received it.
func (c *client) String() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d\n", c.status)
	_ = c.header.Write(crlfWriter{&b}) // to memory
	fmt.Fprintf(&b, "\n%s", c.body.String())
	if c.pending {
		b.WriteString("<<not flushed>>")
	}
	return b.String()
}
