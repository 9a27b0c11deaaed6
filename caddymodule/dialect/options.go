package dialect

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
