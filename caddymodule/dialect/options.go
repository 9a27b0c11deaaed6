package dialect

import "github.com/postern-dev/postern/caddymodule/compat"

// Gateway is the decoder's interface to the gateway.
type Gateway interface {
	// Admit returns the options of a model's deployment, or an error if the
	// client may not use the model. A decoder calls it once, as soon as the
	// model is known and before the request is translated.
	Admit(model string) (compat.Options, *Error)
	// Reserve reserves memory for the translation of n bytes in addition to the
	// body.
	Reserve(n int64) *Error
	// Window returns the context window where the request was sent, in tokens; 0: not known.
	Window() int
}

// admit calls Gateway.Admit. Without a Gateway, it returns default options.
func (e *Env) admit(model string) (compat.Options, *Error) {
	if e.Gateway == nil {
		return compat.Options{}, nil
	}
	return e.Gateway.Admit(model)
}

// reserve calls Gateway.Reserve.
func (e *Env) reserve(n int) *Error {
	if e.Gateway == nil {
		return nil
	}
	return e.Gateway.Reserve(int64(n))
}

// ended reports whether the request's context is done.
func (e *Env) ended() bool { return e.Context != nil && e.Context.Err() != nil }

// effortLevel maps a client's reasoning effort to the levels that model servers support.
func effortLevel(effort string) string {
	switch effort {
	case "minimal":
		return "low"
	case "xhigh", "max":
		return "high"
	}
	return effort
}
