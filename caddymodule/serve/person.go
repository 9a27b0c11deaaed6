package serve

import (
	"net/http"
	"strings"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/text"
)

// PersonHeader returns the header that names the person behind the key of a request, "" if there is none.
func (a Authenticator) PersonHeader(h http.Header) string {
	b, err := a.Open()
	if err != nil {
		return ""
	}
	key, ok := b.Store.FindKey(SentKey(h))
	if !ok {
		return ""
	}
	header, _ := key.NamesPeople()
	return header
}

// findPerson finds the person behind the key, if a header names people. If the body does, the person is among others
// until it is read.
func (c *clientRequest) findPerson() {
	if header, inBody := c.exchange.Key.NamesPeople(); header != "" || inBody {
		c.setPerson(c.header.Get(header))
	}
}

// takePerson takes the person out of the body, if bodies name people.
func (c *clientRequest) takePerson(body []byte) {
	if _, inBody := c.exchange.Key.NamesPeople(); inBody && c.form == nil {
		c.setPerson(dialect.TakePerson(c.exchange.Operation, body))
	}
}

// setPerson sets the person behind the key. A name that is missing or cannot be shown is no error.
func (c *clientRequest) setPerson(name string) {
	name = strings.TrimSpace(name)
	if len(name) > store.MaxPerson || !text.IsPrintable(name) {
		name = ""
	}
	ex := c.exchange
	ex.person = c.Activity.Person(c.ctx, ex.Account, ex.Key.ID(), name)
	ex.subject = limits.PersonOf(ex.Key.ID(), ex.person)
}
