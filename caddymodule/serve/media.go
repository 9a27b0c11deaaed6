package serve

import (
	"io"
	"net/http"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// speechModels returns the names of the deployments for speech that the key's scope allows.
func (c *clientRequest) speechModels() (names []string) {
	ex := c.exchange
	for _, d := range c.Store.Deployments(ex.Account) {
		if d.Kind == store.SpeechModel && ex.Key.Scope().Allows(d.Name) {
			names = append(names, d.Name)
		}
	}
	return names
}

// speechModel returns the model of a request for voices that names none: the only one for speech.
func (c *clientRequest) speechModel() (string, *dialect.Error) {
	if names := c.speechModels(); len(names) == 1 {
		return names[0], nil
	}
	return "", dialect.NoVoiceModel()
}

// pass sends an answer of rerank, audio or images as it comes: by its Content-Type, because servers also send others
// than the client has asked for.
func (c *clientRequest) pass(response *http.Response, media *dialect.MediaCall) *dialect.Error {
	c.exchange.attempts.first.arrived()
	switch {
	case link.HasMediaType(response.Header, typeJSON):
		return c.sendWhole(response)
	case link.HasMediaType(response.Header, typeEvents):
		c.exchange.Streamed = true
		c.answer.open(media.NewStream(), 0)
		return c.sendStream(response.Body)
	}
	c.exchange.Usage, c.wholeTranslated = media.Usage(), true
	return c.passBytes(response)
}

// passBytes sends an answer of another format. Each read causes one write, which is flushed. An answer that breaks off
// ends the connection, so that no client takes it for complete.
func (c *clientRequest) passBytes(response *http.Response) *dialect.Error {
	buf := largeBuffers.Get().(*[]byte)
	defer largeBuffers.Put(buf)
	for {
		n, err := response.Body.Read(*buf)
		ended := err == io.EOF
		if !c.mayRun() {
			return c.tear(c.orEnded(dialect.StoreLostDuring()))
		}
		if n > 0 || ended {
			if !c.answer.piece(response.Header, (*buf)[:n]) {
				return nil // the client is gone
			}
		}
		switch {
		case ended:
			return nil
		case err != nil:
			return c.tear(c.brokenAnswer(err))
		}
	}
}

// tear ends an answer that is not complete. It returns the error if nothing was sent, so that the client can get it.
func (c *clientRequest) tear(derr *dialect.Error) *dialect.Error {
	if derr != nil && c.answer.tear(derr) {
		return nil
	}
	return derr
}
