package serve

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/postern-dev/postern/caddymodule/dialect"
)

const (
	// maxTokens is the header with the limit of an answer that the model server got in place of the client's.
	maxTokens = "X-Postern-Max-Tokens"
	// roomMargin are tokens of the window that an answer does not get.
	roomMargin = 64
	// minRoom is the lowest limit of an answer.
	minRoom = 1024
	// minLeft is how many tokens a prompt must leave, so that the client is asked for a lower limit: Claude Code gives
	// up below it. If fewer are left, the prompt is too long.
	minLeft = 3000
)

// measureForAnswer measures the prompt if a model server may refuse it because of the limit of its answer.
func (c *clientRequest) measureForAnswer() {
	limit := c.call.AnswerLimit()
	c.room = 0
	if limit <= minRoom || !c.exchange.Operation.IsChat() {
		return
	}
	for _, connector := range c.deployment.Connectors {
		w, _ := c.window(c.exchange, &c.deployment, connector)
		if w.Strict && limit+c.size+c.kept+roomMargin > int64(w.Tokens) {
			c.measure()
		}
	}
}

// lowerLimit lowers the limit of the answer to the room that the prompt leaves in the window of the chosen connector.
func (t *routing) lowerLimit() {
	ex, room := t.exchange, t.room
	size, ok := t.sizeThrough(ex.Connector)
	if w, _ := t.window(ex, t.deployment, ex.Connector); ok && room == 0 && w.Strict && w.Tokens > 0 {
		room = max(int64(w.Tokens-size.Max()-roomMargin), minRoom)
	}
	if room >= t.call.AnswerLimit() {
		room = 0
	}
	if room == ex.MaxTokens {
		return
	}
	ex.MaxTokens = room
	t.call.FitAnswer(room)
	h := http.Header{maxTokens: nil}
	if room > 0 {
		h.Set(maxTokens, strconv.FormatInt(room, 10))
	}
	t.answer.header(h)
}

// noRoom handles the refusal of a prompt because of the limit of its answer. again means that the request must be sent
// again, with a limit that fits: no model has seen it. Otherwise, the error is the client's.
func (c *clientRequest) noRoom(derr *dialect.Error) (_ *dialect.Error, again bool) {
	if derr == nil || !derr.Room {
		return derr, false
	}
	ex, prompt := c.exchange, derr.PromptTokens
	c.Observed.RefusedAnswer(&c.deployment, ex.Connector)
	if prompt == 0 && ex.Operation.IsChat() && c.measure() {
		size, _ := c.sizeThrough(ex.Connector)
		if prompt = int64(size.Max()); ex.MaxTokens > 0 { // the model's tokenizer needs more
			prompt += int64(size.Rest) / 2
		}
	}
	limit, left := c.call.AnswerLimit(), derr.Window-prompt
	room := left - roomMargin
	switch {
	case prompt == 0:
	case !c.limitLowered && room >= minRoom && room < cmp.Or(ex.MaxTokens, limit) && !c.answer.committed():
		c.limitLowered, c.room, c.refusedTokens = true, room, 0
		return derr, true
	case left >= minLeft && left < limit:
		return dialect.NoRoom(prompt, limit, derr.Window), false
	}
	return derr, false
}
