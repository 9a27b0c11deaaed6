package dialect

import "bytes"

// A client that runs out of room sends its conversation with an item
// compaction_trigger at its end, and wants exactly one item back: a compaction,
// which it keeps in place of the conversation and never looks into. A model
// server has nothing like that, so the model is asked for a summary, and the
// item carries it.

// compactionOrder is the order to the model.
const compactionOrder = "Summarize this conversation. Another assistant will go on with the work, and will know nothing of it but your summary. " +
	"Tell what the user wants and has decided, what has been done and found out, which files, names, commands and values matter, exactly as they are, " +
	"what did not work, and what is to be done next. Call no tools, and write nothing but the summary."

// compactionHead stands before the summary when it comes back.
const compactionHead = "This is a summary of the conversation so far:\n\n"

// readTrigger makes the request one for a summary, if the input ends in the
// trigger. Anywhere else it is history.
func (c *responsesCall) readTrigger(fieldList) {
	last := len(c.items) - 1
	if last < 0 || itemType(readFields(c.items[last].raw)) != "compaction_trigger" {
		return
	}
	c.compact = true
	c.conversation.addUser([]contentPart{{text: compactionOrder}})
}

// compactionEncoder writes an answer that is a compaction: nothing of the
// summary is sent before its end.
type compactionEncoder struct {
	responsesEncoder
	kind    partKind // of the open block
	summary []byte
	refused bool
}

// held implements encoder.
func (c *compactionEncoder) held() int64 { return c.responsesEncoder.held() + int64(cap(c.summary)) }

// wantsWhole implements encoder.
func (c *compactionEncoder) wantsWhole(string) bool { return true }

// open implements encoder.
func (c *compactionEncoder) open(kind partKind, _, _ string) { c.kind = kind }

// logprobs implements encoder: they cannot be asked for here.
func (c *compactionEncoder) logprobs([]byte) {}

// fill implements encoder: thinking and calls of unknown tools are not part of a
// summary.
func (c *compactionEncoder) fill(s string) {
	switch c.kind {
	case partText:
		c.summary = append(c.summary, s...)
	case partRefusal:
		c.refused = true
	}
}

// close implements encoder.
func (c *compactionEncoder) close(bool) {}

// finish implements encoder.
func (c *compactionEncoder) finish(o outcome) *Error {
	// The client would throw its conversation away for half a summary too.
	if c.refused || o.finish.cut() || len(bytes.TrimSpace(c.summary)) == 0 {
		return noSummary()
	}
	c.item = responseItem{form: &compactionItem, id: c.call.env.NewID("cmp_"), text: append([]byte(compactionHead), c.summary...)}
	c.responsesEncoder.close(false)
	return c.responsesEncoder.finish(o)
}
