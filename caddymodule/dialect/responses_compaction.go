package dialect

import "bytes"

// A client that runs out of context ends its conversation with an item
// compaction_trigger. It expects exactly one item, a compaction, which replaces the
// conversation and is opaque to the client. The gateway asks the model for a summary
// and puts it into the item.

// compactionOrder is the prompt for the summary.
const compactionOrder = "Summarize this conversation. " +
	"Another assistant will go on with the work, and will know nothing of it but your summary. " +
	"Tell what the user wants and has decided, what has been done and found out, " +
	"which files, names, commands and values matter, exactly as they are, " +
	"what did not work, and what is to be done next. Call no tools, and write nothing but the summary."

// compactionHead precedes the summary in later requests.
const compactionHead = "This is a summary of the conversation so far:\n\n"

// readTrigger requests a summary if the input ends with the trigger. Elsewhere, the
// trigger is ignored.
func (c *responsesCall) readTrigger(fieldList) {
	last := len(c.items) - 1
	if last < 0 || itemType(readFields(c.items[last].raw)) != "compaction_trigger" {
		return
	}
	c.compact = true
	c.conversation.addUser([]contentPart{{text: compactionOrder}})
}

// compactionEncoder encodes an answer as a compaction. The summary is buffered until the
// answer is complete.
type compactionEncoder struct {
	responsesEncoder
	kind    partKind // of the open block
	summary []byte
	refused bool
}

// buffered implements encoder.
func (c *compactionEncoder) buffered() int64 {
	return c.responsesEncoder.buffered() + int64(cap(c.summary))
}

// wantsWhole implements encoder.
func (c *compactionEncoder) wantsWhole(string) bool { return true }

// open implements encoder.
func (c *compactionEncoder) open(kind partKind, _, _ string) { c.kind = kind }

// logprobs implements encoder. They are never requested for a compaction.
func (c *compactionEncoder) logprobs([]byte) {}

// fill implements encoder. Thinking and tool calls are not part of a summary.
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
	// The client would replace its conversation even by an incomplete summary.
	if c.refused || o.finish.cut() || len(bytes.TrimSpace(c.summary)) == 0 {
		return noSummary()
	}
	c.item = responseItem{
		form: &compactionItem, id: c.call.env.NewID("cmp_"),
		text: append([]byte(compactionHead), c.summary...),
	}
	c.responsesEncoder.close(false)
	return c.responsesEncoder.finish(o)
}
