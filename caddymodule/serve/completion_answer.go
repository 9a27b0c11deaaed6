package serve

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/memory"
)

// maxAnswer is the largest answer that is not a stream, in bytes: it is held in
// memory, as its model name is replaced. Embeddings of a large batch are the
// largest that are met in practice, tens of MiB.
const maxAnswer = 128 << 20

// maxErrorAnswer is how much of an upstream's error is read, in bytes.
const maxErrorAnswer = 64 << 10

// linger is how long an upstream that has finished its answer may take to send
// usage and [DONE].
const linger = 5 * time.Second

// render sends the upstream's answer to the client.
func (c *completion) render(response *http.Response) *dialect.Error {
	if response.StatusCode != http.StatusOK {
		return c.upstreamError(response)
	}
	if c.noEffort { // and answers without one: an error's text may be the client's
		if of, ok := c.registration(); ok {
			c.learner.learnNoEffort(of)
		}
	}
	if !c.call.Streamed() {
		return c.whole(response)
	}
	if link.HasMediaType(response.Header, "application/json") {
		return c.replay(response)
	}
	c.answer.begin()
	return c.stream(response.Body)
}

// upstreamError translates an upstream's error.
func (c *completion) upstreamError(response *http.Response) *dialect.Error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorAnswer))
	if err != nil && (c.ctx.Err() != nil || errors.Is(err, tunnel.ErrCompressed)) {
		return c.broken(err)
	}
	derr := dialect.FromUpstream(response.StatusCode, response.Header, body)
	c.Logger.Warn("the upstream answered with an error", "deployment", c.exchange.Deployment,
		"connector", c.exchange.Connector, "status", response.StatusCode)
	return derr
}

// whole sends an answer that is not a stream.
func (c *completion) whole(response *http.Response) *dialect.Error {
	body, derr := c.readWhole(response)
	if derr != nil || body == nil {
		return derr
	}
	if c.exchange.held.holdAnswer(c.exchange.answerCost(int64(len(body)))) != nil {
		return dialect.MemoryFull()
	}
	out, usage, derr := c.call.Answer(body)
	if derr != nil {
		return derr
	}
	_ = c.exchange.held.holdAnswer(int64(len(out))) // less than before always succeeds
	_ = c.answer.whole(http.StatusOK, out)          // a failed write means that the client is gone
	c.book(usage)
	return nil
}

// readWhole reads an answer into memory; nil without an error if the client
// is gone.
func (c *completion) readWhole(response *http.Response) ([]byte, *dialect.Error) {
	body, err := readAll(response.Body, response.ContentLength, maxAnswer, c.exchange.held.holdAnswer)
	switch {
	case errors.Is(err, memory.ErrExceeded):
		return nil, dialect.MemoryFull()
	case errors.Is(err, errTooLarge):
		return nil, dialect.AnswerTooLarge(c.exchange.Deployment, maxAnswer)
	case err != nil:
		return nil, c.broken(err)
	}
	return body, nil
}

// replay sends an answer that came whole although a stream was asked for.
func (c *completion) replay(response *http.Response) *dialect.Error {
	body, derr := c.readWhole(response)
	if derr != nil || body == nil {
		return derr
	}
	if c.exchange.held.holdAnswer(replayCost*int64(len(body))) != nil {
		return dialect.MemoryFull()
	}
	events, derr := dialect.ReplayAsStream(body)
	if derr != nil {
		return derr
	}
	_ = c.exchange.held.holdAnswer(int64(len(events))) // less than before
	return c.stream(io.NopCloser(bytes.NewReader(events)))
}

// copyBuffers are the buffers that streams are read into: at most 32 KiB of
// events in one read.
var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// stream sends an event stream on as it comes: each read of the upstream's
// body is at most one write, flushed at once.
func (c *completion) stream(body io.ReadCloser) *dialect.Error {
	buf := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buf)
	var last *time.Timer
	for {
		n, err := body.Read(buf[:])
		at, derr := c.answer.feed(buf[:n])
		switch {
		case derr != nil:
			return derr
		case at.gone:
			c.book(c.answer.usage())
			return nil
		case err != nil:
			if derr := c.answer.finish(c.cause(at, err)); derr != nil {
				return derr
			}
			c.book(c.answer.usage())
			return nil
		case at.done:
			c.book(c.answer.usage())
			if at.err == nil {
				drain(body)
			}
			return nil
		}
		if derr := c.remember(at.held); derr != nil {
			return c.answer.finish(derr)
		}
		if last == nil && at.finished {
			last = time.AfterFunc(linger, func() { body.Close() })
			defer last.Stop()
		}
	}
}

// remember counts the held bytes that the stream remembers of the answer, and
// returns an error if they are too many.
func (c *completion) remember(held int64) *dialect.Error {
	if held > maxRemembered {
		return dialect.StreamTooLarge(c.exchange.Deployment, maxRemembered)
	}
	if c.exchange.held.remember(held) != nil {
		return dialect.MemoryFull()
	}
	return nil
}

// drain reads the end of a body when its stream is done. An upstream's connection
// can be used again only if its answer was read to the end, which comes right
// behind the [DONE], or else is not waited for.
func drain(body io.ReadCloser) {
	const wait = 50 * time.Millisecond
	timer := time.AfterFunc(wait, func() { body.Close() })
	defer timer.Stop()
	_, _ = io.Copy(io.Discard, body) // an error means that the end did not come: the body is closed anyway
}

// cause is the error that broke the upstream's stream, nil for its proper end.
func (c *completion) cause(at progress, err error) *dialect.Error {
	if errors.Is(err, io.EOF) || at.finished || at.done {
		return nil
	}
	derr := c.broken(err)
	if derr == nil || c.ctx.Err() != nil || !c.answer.committed() || errors.Is(err, tunnel.ErrCompressed) {
		return derr
	}
	if errors.Is(err, link.ErrTunnelLost) {
		return dialect.TunnelBroken()
	}
	return dialect.StreamBroken() // the client has a part of the answer
}
