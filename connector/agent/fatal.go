package agent

// FatalError ends [Agent.Run]: to go on would help only after somebody has
// changed the configuration, or something on the gateway.
type FatalError struct {
	Reason string // why
	Fix    string // what to do about it
}

// Error implements error.
func (e *FatalError) Error() string { return e.Reason + "; " + e.Fix }

// fatal returns the error that ends Run after a tunnel, or an attempt at one,
// that ended so; nil means that another attempt may help. The word of a gateway
// that has shown its identity, that the connector was removed, is final. A
// process that has been online also bears a refusal: the gateway may be restored
// from a backup, or somebody else may answer for it for a while. One that never
// was has most likely the wrong token, and nobody may ever look at its log.
func (a *Agent) fatal(err error) *FatalError {
	switch kind := kindOf(err); {
	case kind == endRemoved, !a.known && (kind == endRefused || kind == endWrongPin):
	default:
		return nil
	}
	if next, _ := a.waiting(); next != nil {
		return nil // somebody's hand was there already
	}
	return &FatalError{Reason: reason(err), Fix: fixFor(err)}
}

// fixFor says what to do about the end of a tunnel, or of an attempt at one; it
// is empty where there is nothing to do but wait.
func fixFor(err error) string {
	switch kindOf(err) {
	case endRefused:
		return "create a new token with `caddy gateway connector create` and put it into tunnel_token, or pair again"
	case endRemoved:
		return "the connector was removed on the gateway; create a new one with `caddy gateway connector create` and put its token into tunnel_token, or pair again"
	case endReplaced:
		return "another connector runs with the same tunnel token; stop one of the two, or give it a token of its own"
	case endWrongPin:
		return "check `server`; if the gateway lost its storage, create a new token with `caddy gateway connector create`, or pair again"
	case endSilent:
		return "check that the gateway runs and that UDP, or HTTPS, can reach it"
	case endPortal:
		return "this network may ask to sign in first: open any page in a browser on it"
	default:
		return ""
	}
}
