package dialect

import "github.com/postern-dev/postern/caddymodule/compat"

// Gateway is whom a decoder asks while it reads a request.
type Gateway interface {
	// Admit returns how the model server behind a model is to be treated, or
	// why the caller may not use the model. A decoder calls it once, as soon as
	// the request's model is known and before anything is translated.
	Admit(model string) (compat.Options, *Error)
	// Hold reserves memory for n bytes that are to be translated in addition to
	// the body, or returns why that cannot be.
	Hold(n int64) *Error
}

// admit does Gateway.Admit. Without a gateway each model has the defaults.
func (e *Env) admit(model string) (compat.Options, *Error) {
	if e.Gateway == nil {
		return compat.Options{}, nil
	}
	return e.Gateway.Admit(model)
}

// hold does Gateway.Hold.
func (e *Env) hold(n int) *Error {
	if e.Gateway == nil {
		return nil
	}
	return e.Gateway.Hold(int64(n))
}

// ended reports whether the request's context has ended.
func (e *Env) ended() bool { return e.Context != nil && e.Context.Err() != nil }

// reasoningStore seals and opens what clients carry for the account.
func (e *Env) reasoningStore() reasoningStore { return reasoningStore{e.Sealer, e.Account} }

// effortLevel is a degree of thinking as model servers know it: they know
// fewer than clients ask for.
func effortLevel(effort string) string {
	switch effort {
	case "minimal":
		return "low"
	case "xhigh", "max":
		return "high"
	}
	return effort
}
