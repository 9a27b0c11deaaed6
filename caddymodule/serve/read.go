package serve

import (
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
	"github.com/postern-dev/postern/caddymodule/store"
)

// droppedParts is the header that lists what was dropped of a request, see [dialect.Call].
const droppedParts = "X-Postern-Dropped"

// read reads the request. Large requests wait for their turn to be decompressed and
// decoded.
func (c *clientRequest) read(r *http.Request) *dialect.Error {
	ex := c.exchange
	encoding, derr := contentEncoding(r.Header)
	if derr != nil {
		return derr
	}
	if c.form, derr = dialect.FormOf(ex.Operation, r.Header); derr != nil {
		return derr
	}
	c.memory.reservation = ex.reservation()
	defer c.endTurn()
	declared := bodyCost(min(max(r.ContentLength, 0), c.MaxBody), ex.costs().decoding)
	reserve := func(n int64) error { return c.memory.reserveRequest(max(n, declared)) }
	var look func([]byte) error
	arriving := reserve
	if c.form != nil {
		arriving = c.awaitMemory(reserve)
		if encoding == "" {
			look = c.readForm
		}
	}
	body, derr := readBody(r, c.MaxBody, arriving, look)
	if derr != nil {
		if c.unread = r.ProtoMajor == 1; c.unread { // net/http reads a part of the rest before the answer, unless it closes
			c.answer.header(http.Header{"Connection": {"close"}})
		}
		return c.orEnded(derr)
	}
	if encoding != "" {
		if derr := c.awaitTurn(c.MaxBody, tooManyRequests); derr != nil {
			return derr
		}
		if body, derr = decompress(body, encoding, c.MaxBody, reserve); derr != nil {
			return derr
		}
	}
	c.takePerson(body)
	return c.decode(body)
}

// maxDrain is how long the rest of a refused body is read.
const maxDrain = 5 * time.Second

// drain reads the rest of a body that was refused. The connection closes after that, and a client that is still sending
// would not see the answer.
func (c *clientRequest) drain(r *http.Request) {
	if !c.unread {
		return
	}
	until, control := time.Now().Add(maxDrain), http.NewResponseController(c.answer.w)
	if control.Flush() != nil || control.SetReadDeadline(until) != nil {
		return
	}
	buf := largeBuffers.Get().(*[]byte)
	defer largeBuffers.Put(buf)
	for time.Now().Before(until) {
		if _, err := r.Body.Read(*buf); err != nil {
			return
		}
	}
}

// readForm reads a form as far as it has arrived. Once its model is known, the request is admitted, before the rest of
// the form is read.
func (c *clientRequest) readForm(body []byte) error {
	derr := c.form.Read(body)
	if model := c.form.Model(); derr == nil && model != "" && !c.running {
		derr = c.admit(model)
	}
	if derr != nil {
		return derr
	}
	return nil
}

const (
	uploadWait = 30 * time.Second // for memory, in total, while a form arrives
	uploadPoll = 100 * time.Millisecond
)

// awaitMemory returns a function that reserves memory as reserve does. It waits for it: forms with files are large, and
// their clients do not send them again as easily as others do.
func (c *clientRequest) awaitMemory(reserve func(n int64) error) func(n int64) error {
	left := uploadWait
	return func(n int64) error {
		for {
			err := reserve(n)
			if err == nil || c.ctx.Err() != nil || left <= 0 {
				return err
			}
			select {
			case <-c.ctx.Done():
			case <-time.After(uploadPoll):
				left -= uploadPoll
			}
		}
	}
}

// decode decodes the request's body. A request whose deployment is not known yet is admitted, as soon as its model is
// known.
func (c *clientRequest) decode(body []byte) *dialect.Error {
	ex := c.exchange
	defer c.endTurn()
	c.size = int64(len(body))
	if derr := c.awaitTurn(c.size, tooManyRequests); derr != nil {
		return derr
	}
	if c.memory.reserveRequest(c.held+bodyCost(c.size, ex.costs().decoding)) != nil {
		return dialect.MemoryFull()
	}
	env := c.env()
	head, derr := dialect.ReadHead(ex.Operation, body, env)
	if derr == nil && !c.running {
		derr = c.admit(head.Model)
	}
	if derr == nil {
		derr = c.findReferences(head.References, env.Kept)
	}
	if derr == nil {
		c.call, derr = head.Decode(c.deployment.Options)
	}
	if derr != nil {
		return c.orEnded(derr)
	}
	if c.memory.request > requestCost { // smaller requests save too little
		_ = c.memory.reserveRequest(bodyCost(c.size+c.kept, ex.costs().decoded)) // a smaller reservation always succeeds
	}
	if ex.Dropped = c.call.Dropped(); ex.Dropped != "" {
		c.answer.header(http.Header{droppedParts: {ex.Dropped}})
	}
	if c.deployment.Fallback != "" && !c.judge {
		c.bodyForFallback = body // the cost of a decoded request includes it
	}
	works, known := c.Observed.EffortWorks(&c.deployment, ex.client().Owner, c.info.Effort, c.info.Tools)
	if known && !works && c.call.DropEffort() {
		c.info.Effort = "" // the answer shows nothing about it
	}
	return nil
}

// env returns the environment of the request's call.
func (c *clientRequest) env() *dialect.Env {
	ex := c.exchange
	env := &dialect.Env{
		Context: c.ctx,
		Now:     time.Now, NewID: dialect.NewID, RequestID: ex.RequestID, SignatureKey: c.completions.signatureKey,
		Account: ex.Account, Sealer: c.completions.sealer, Estimate: c.estimate,
		Info: &c.info, Form: c.form, DefaultModel: ex.Key.DefaultModel(), Betas: c.header.Values("Anthropic-Beta"),
	}
	if ex.Operation.Dialect == dialect.Responses {
		env.Kept = c.keptView()
	}
	return env
}

// admit finds the deployment of a model, if the client may use it.
func (c *clientRequest) admit(model string) (derr *dialect.Error) {
	ex := c.exchange
	ex.Model = model
	d, ok := c.Store.Resolve(ex.Account, model, ex.Key.Scope())
	ex.Reason, derr = ex.check(d, ok)
	c.assign(d)
	return derr
}

// assign makes a deployment serve the request.
func (c *clientRequest) assign(d store.Deployment) {
	ex := c.exchange
	if c.running {
		c.Observer.Running(ex, -1)
	}
	c.deployment, ex.Deployment = d, d.Name
	if c.running = d.Name != ""; c.running {
		c.Observer.Running(ex, 1)
	}
}

// findReferences looks for the kept responses that the request refers to. They count as parts of the body, and large
// ones wait for their turn as bodies do.
func (c *clientRequest) findReferences(references []dialect.Reference, view kept.View) *dialect.Error {
	for i := range references {
		n, found := references[i].Find(view)
		if !found {
			return nil // Decode names it
		}
		if c.kept += n; c.size+c.kept > c.MaxBody {
			return dialect.ReferencesTooLarge(c.MaxBody)
		}
		if derr := c.awaitTurn(c.size+c.kept, tooManyRequests); derr != nil {
			return derr
		}
		if c.memory.reserveRequest(c.held+bodyCost(c.size+c.kept, c.exchange.costs().decoding)) != nil {
			return dialect.MemoryFull()
		}
	}
	return nil
}
