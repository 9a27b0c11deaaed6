package serve

import (
	"bytes"
	"context"
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

// maxAnswer is the maximum size of an answer that is not a stream, in bytes. The
// answer is read into memory to replace its model name. The largest ones in practice
// are embeddings of a large batch, tens of MiB.
const maxAnswer = 128 << 20

// maxErrorAnswer is the maximum size of an upstream's error that is read, in bytes.
const maxErrorAnswer = 64 << 10

// linger is how long the gateway waits for usage and [DONE] after the answer is
// complete.
const linger = 5 * time.Second

// receive reads the upstream's answer, and sends it to the client.
func (c *clientRequest) receive(response *http.Response) *dialect.Error {
	ex := c.exchange
	w, _ := c.window(ex, &c.deployment, ex.Connector)
	c.info = dialect.AnswerInfo{
		Wanted: ex.span.recording(), Window: w.Tokens, Effort: c.info.Effort, Tools: c.info.Tools,
	}
	if body, ok := response.Body.(interface{ DecoderMemory() int64 }); ok &&
		c.memory.reserveRequest(c.memory.request+body.DecoderMemory()) != nil {
		return dialect.MemoryFull() // for the decoder of a compressed answer
	}
	return c.render(response)
}

// render sends the upstream's answer to the client.
func (c *clientRequest) render(response *http.Response) *dialect.Error {
	if response.StatusCode != http.StatusOK {
		return c.upstreamError(response)
	}
	if media := c.media(); media != nil {
		return c.pass(response, media)
	}
	if !c.call.Streamed() {
		return c.sendWhole(response)
	}
	if link.HasMediaType(response.Header, typeJSON) {
		return c.sendAsStream(response)
	}
	return c.sendStream(response.Body)
}

// upstreamError translates an upstream's error.
func (c *clientRequest) upstreamError(response *http.Response) *dialect.Error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorAnswer))
	if err != nil && (c.ctx.Err() != nil || errors.Is(err, tunnel.ErrCompressed)) {
		return c.brokenAnswer(err)
	}
	derr := dialect.FromUpstream(response.StatusCode, response.Header, body)
	c.Logger.Warn("the upstream answered with an error", "deployment", c.exchange.Deployment,
		"connector", c.exchange.Connector, "status", response.StatusCode)
	return derr
}

// sendWhole sends an answer that is not a stream.
func (c *clientRequest) sendWhole(response *http.Response) *dialect.Error {
	body, derr := c.readWhole(response)
	if derr != nil || body == nil {
		return derr
	}
	out, usage, derr := c.translate(body)
	if derr != nil {
		return derr
	}
	c.exchange.Usage, c.wholeTranslated = usage, true
	if c.call.Safeguard().Waits() {
		return nil
	}
	_ = c.memory.reserveAnswer(int64(len(out))) // a smaller reservation always succeeds
	if !c.mayRun() {
		return c.orEnded(dialect.StoreLostDuring())
	}
	_ = c.answer.whole(http.StatusOK, out) // a failed write means that the client is gone
	return nil
}

// translate translates a whole answer in its turn.
func (c *clientRequest) translate(body []byte) (_ []byte, _ dialect.Usage, derr *dialect.Error) {
	defer c.endTurn()
	if derr = c.awaitAnswerTurn(body, c.exchange.costs().encoding); derr != nil {
		return nil, dialect.Usage{}, derr
	}
	return c.call.Answer(body)
}

// awaitAnswerTurn waits for the turn to work on a whole answer, until endTurn, and reserves cost bytes for each of its
// bytes. Large answers take turns, as requests do, and need this memory only then.
func (c *clientRequest) awaitAnswerTurn(body []byte, cost int64) *dialect.Error {
	n := int64(len(body))
	if derr := c.awaitTurn(n, tooManyAnswers); derr != nil {
		return derr
	}
	if c.memory.reserveAnswer(cost*n) != nil {
		return dialect.MemoryFull()
	}
	return nil
}

// readWhole reads an answer into memory. It returns nil without an error if the client disconnected.
func (c *clientRequest) readWhole(response *http.Response) ([]byte, *dialect.Error) {
	c.exchange.attempts.first.arrived()
	body, err := readAll(response.Body, response.ContentLength, maxAnswer, c.memory.reserveAnswer, nil)
	c.release() // the client may be slow to read the answer
	switch {
	case errors.Is(err, memory.ErrExceeded):
		return nil, dialect.MemoryFull()
	case errors.Is(err, errTooLarge):
		return nil, dialect.AnswerTooLarge(c.exchange.Deployment, maxAnswer)
	case err != nil:
		return nil, c.brokenAnswer(err)
	}
	return body, nil
}

// sendAsStream sends a complete answer as the stream that the client requested.
func (c *clientRequest) sendAsStream(response *http.Response) *dialect.Error {
	body, derr := c.readWhole(response)
	if derr != nil || body == nil {
		return derr
	}
	defer c.endTurn()
	if derr = c.awaitAnswerTurn(body, replayCost); derr != nil {
		return derr
	}
	events, derr := dialect.ReplayAsStream(body)
	c.endTurn() // the client may be slow to read the events
	if derr != nil {
		return derr
	}
	_ = c.memory.reserveAnswer(int64(len(events))) // a smaller reservation always succeeds
	c.answer.replayed = true
	return c.sendStream(io.NopCloser(bytes.NewReader(events)))
}

// smallBuffers and largeBuffers contain the buffers that streams are read into. A stream begins with a small one,
// because thousands may run.
var (
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, 4<<10); return &b }}
	largeBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
)

// sendStream forwards an event stream. Each read of the upstream's body causes at most
// one write, which is flushed.
func (c *clientRequest) sendStream(body io.ReadCloser) *dialect.Error {
	c.streaming = true
	pool := &smallBuffers
	buf := pool.Get().(*[]byte)
	defer func() { pool.Put(buf) }()
	var last *time.Timer
	for {
		n, err := body.Read(*buf)
		if !c.mayRun() {
			return c.answer.endStream(c.orEnded(dialect.StoreLostDuring()))
		}
		p, derr := c.answer.feed((*buf)[:n])
		if p.begun || p.finished {
			c.exchange.attempts.first.arrived()
		}
		if derr == nil && err != nil && !p.gone {
			derr = c.answer.endStream(c.streamError(p, err))
		}
		if derr != nil {
			return derr
		}
		if p.gone || p.done || err != nil {
			if p.done && p.err == nil {
				drain(body)
			}
			return nil
		}
		if derr := c.reserveBuffered(p.buffered); derr != nil {
			return c.answer.endStream(derr)
		}
		if last == nil && p.finished {
			last = time.AfterFunc(linger, func() { body.Close() })
			defer last.Stop()
		}
		if n == len(*buf) && pool == &smallBuffers {
			pool.Put(buf)
			pool = &largeBuffers
			buf = pool.Get().(*[]byte)
		}
	}
}

// mayRun reports whether the answer may be passed on. It is false if the process has been suspended for so long that
// the key may be revoked meanwhile, until the request is cut, and if its key has ended the request.
func (c *clientRequest) mayRun() bool {
	ended := c.ctx.Err() != nil && errors.As(context.Cause(c.ctx), new(*dialect.Error))
	return !ended && c.exchange.backend.Store.MayRun()
}

// reserveBuffered reserves memory for the bytes that the stream buffers. It returns an error if
// there are too many.
func (c *clientRequest) reserveBuffered(n int64) *dialect.Error {
	if n > maxBuffered {
		return dialect.StreamTooLarge(c.exchange.Deployment, maxBuffered)
	}
	if c.memory.reserveBuffered(n) != nil {
		return dialect.MemoryFull()
	}
	return nil
}

// drain reads the rest of a body whose stream is done. If the gateway closed it, the connector would
// count a canceled request, and the model server would lose its client. Usually EOF follows [DONE] at
// once, so drain waits only briefly.
func drain(body io.ReadCloser) {
	const wait = 50 * time.Millisecond
	timer := time.AfterFunc(wait, func() { body.Close() })
	defer timer.Stop()
	_, _ = io.Copy(io.Discard, body) // on timeout the body is closed
}

// streamError returns the error that broke the upstream's stream, nil for a clean end.
func (c *clientRequest) streamError(p progress, err error) *dialect.Error {
	if errors.Is(err, io.EOF) || p.finished || p.done {
		return nil
	}
	derr := c.brokenAnswer(err)
	if derr == nil || c.ctx.Err() != nil || !c.answer.committed() || errors.Is(err, tunnel.ErrCompressed) ||
		errors.As(err, new(*dialect.Error)) {
		return derr
	}
	if errors.Is(err, link.ErrTunnelLost) {
		return dialect.TunnelBroken()
	}
	return dialect.StreamBroken() // the client received a part of the answer
}
