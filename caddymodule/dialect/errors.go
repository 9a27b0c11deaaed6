package dialect

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// RefusedKey is the error for a key that is refused. reason is "missing", "unknown", one of
// [store.Refusal] or, for a secret of another kind, "management_token" or "tunnel_token", or, for
// a text without the form of a key, "placeholder", "quoted", "second_bearer" or "malformed".
func RefusedKey(reason string) *Error {
	if reason == "ip_not_allowed" {
		return addressNotAllowed()
	}
	const unknown = "Unknown API key. Check that the key belongs to this gateway and is complete, or ask for a new one."
	return &Error{Kind: KindInvalidKey, Message: cmp.Or(refusedKeys[reason], unknown)}
}

var refusedKeys = map[string]string{
	"missing":  "Missing API key. Send it as `Authorization: Bearer sk-svc-…` or `x-api-key: sk-svc-…`.",
	"revoked":  "This API key has been revoked. Ask for a new one.",
	"expired":  "This API key has expired. Ask its owner to extend it, or ask for a new one.",
	"disabled": "This API key is disabled. Ask its owner to enable it, or use another key.",
	"suspended": "This API key is suspended, because its owner has not signed in for too long. It works again when the " +
		"owner signs in to the gateway's console with the company's account.",
	"not_in_group": "This API key is suspended, because its owner is not in the group of the key, or the group was " +
		"removed. Ask an admin of the gateway, or use another key.",
	"rotated":          "This API key was rotated and no longer works. Use the new key.",
	"management_token": "This is a management token (pmt_…), not an API key. Send an API key (sk-svc-…).",
	"tunnel_token":     "This is a tunnel token (ptt_…) of a connector, not an API key. Send an API key (sk-svc-…).",
	"placeholder": "This is a placeholder, not an API key. Replace it with your API key (sk-svc-…) in the client's " +
		"settings.",
	"quoted":        "The API key contains quotation marks. Remove them in the client's settings.",
	"second_bearer": "The API key begins with `Bearer`. Enter only the key (sk-svc-…) in the client's settings.",
	"malformed": "This API key is incomplete: it should be sk-svc- and 43 letters and digits. Copy it again, or " +
		"ask for a new one.",
}

// EndedKey is the error for a running request whose key was refused for this reason, one of
// [store.Refusal].
func EndedKey(reason string) *Error {
	message := "The API key was revoked during this request. The answer is incomplete."
	switch reason {
	case "expired":
		message = "The API key expired during this request. The answer is incomplete."
	case "disabled":
		message = "The API key was disabled during this request. The answer is incomplete."
	case "suspended":
		message = "The API key was suspended during this request, because its owner has not signed in to the gateway's " +
			"console for too long. The answer is incomplete."
	case "not_in_group":
		message = "The API key was suspended during this request, because its owner is no longer in the group of the " +
			"key, or the group was removed. The answer is incomplete."
	case "rotated":
		message = "The API key was rotated during this request. The answer is incomplete. Use the new key."
	case "out_of_scope": // of the playground; clients get the error of an unknown model
		message = "The API key may no longer use this model, so the answer is incomplete."
	case "ip_not_allowed":
		return addressNotAllowed()
	case "store_lost":
		return StoreLostDuring()
	}
	return &Error{Kind: KindInvalidKey, Message: message}
}

// The errors of requests without further details.
var (
	// addressNotAllowed: the key is for other addresses.
	addressNotAllowed = fixed(KindAddress,
		"This API key may not be used from your IP address. Use it from an allowed network, or ask its owner to allow your "+
			"address.")
	// UnsupportedEncoding: the gateway does not support the Content-Encoding.
	UnsupportedEncoding = fixed(KindUnsupportedEncoding,
		"The request's Content-Encoding is not supported. Use gzip, zstd, or none.")
	// UnreadableBody: the body is incomplete or cannot be decompressed.
	UnreadableBody = fixed(KindInvalidRequest,
		"The request body could not be read: it is incomplete or does not match its Content-Encoding. Send it again.")
	// SlowBody: the body arrives too slowly.
	SlowBody = fixed(KindRequestTimeout, "The request body arrived too slowly. Send at least 64 KiB per minute.")
	// StreamBroken: the upstream's stream ended too early.
	StreamBroken = fixed(KindUpstream,
		"The model server closed the stream before the answer was complete. Try again.")
	// TunnelBroken: the tunnel was lost during a stream.
	TunnelBroken = fixed(KindUpstream,
		"The connection to the model server's connector was lost before the answer was complete. Try again.")
	// brokenArguments: tool arguments are invalid, and a part of them was already sent.
	brokenArguments = fixed(KindUpstream,
		"The model produced invalid tool arguments: they are not a JSON object. Try again.")
	// namelessCall: a tool call has arguments but no name.
	namelessCall = fixed(KindUpstream,
		"The model server sent the arguments of a tool call without the tool's name. Try again.")
	// noChoices: an answer has no choices.
	noChoices = fixed(KindUpstream, "The model server's answer contains no choices. Try again.")
	// noSummary: a compaction has no complete summary.
	noSummary = fixed(KindUpstream,
		"The model did not write a complete summary of the conversation. Try again, or continue with the whole conversation.")
	// NotCancelable: only background responses can be canceled.
	NotCancelable = fixed(KindInvalidRequest, "Cannot cancel a synchronous response.")
	// upgradeRequired: a WebSocket handshake for responses. Clients fall back to POST at once only on status 426.
	upgradeRequired = fixed(KindUpgradeRequired, "WebSocket is not supported here. Use POST /v1/responses instead.")
)

// fixed returns a constructor of errors with a fixed message.
func fixed(kind *Kind, message string) func() *Error {
	return func() *Error { return &Error{Kind: kind, Message: message} }
}

// BodyTooLarge is the error for a request body of more than limit bytes.
func BodyTooLarge(limit int64) *Error {
	return &Error{
		Kind: KindTooLarge,
		Message: "The request body exceeds this gateway's limit (max_body, " + byteSize(limit) + "), compressed or " +
			"decompressed. Send less, or ask the operator to raise max_body.",
	}
}

// ReferencesTooLarge is the error for a request that exceeds limit bytes together with
// the kept items that it refers to.
func ReferencesTooLarge(limit int64) *Error {
	return &Error{
		Kind: KindTooLarge,
		Message: "The request, including the items of previous_response_id and item_reference, exceeds this gateway's " +
			"limit (max_body, " + byteSize(limit) + "). Refer to fewer items, or ask the operator to raise max_body.",
	}
}

// Internal is the error for a failure of the gateway. message must not contain
// confidential details.
func Internal(message string) *Error {
	return &Error{Kind: KindInternal, Message: message}
}

// Overloaded is the error of a gateway that does not accept requests at the moment.
func Overloaded(message string) *Error {
	return &Error{Kind: KindOverloaded, RetryAfter: 5, Message: message}
}

// StoreLost is the error of a gateway that has lost its store and cannot check keys, or whose store is only slow.
func StoreLost(slow bool) *Error {
	if slow {
		return Overloaded("The gateway's store is slow to respond, so this API key cannot be checked yet.")
	}
	return Overloaded("This gateway has lost its store and cannot check API keys.")
}

// StoreLostDuring is the error of a running request that a gateway ends because it is without
// its store for too long.
func StoreLostDuring() *Error {
	return Overloaded("This gateway has lost its store and cannot check whether the API key is still valid. The answer " +
		"is incomplete.")
}

// MemoryFull is the error of a gateway that has reached its memory limit.
func MemoryFull() *Error {
	return Overloaded("The gateway has reached its memory limit for requests and answers (max_memory), in total or for " +
		"this key. Send less at a time, or ask the operator to raise max_memory.")
}

// FromHandler returns the error for a request that another Caddy handler, such as a
// rate limit, rejected with an HTTP status.
func FromHandler(status int) *Error {
	switch {
	case status == 429:
		return &Error{Kind: KindRateLimit, Message: "Too many requests to this gateway. Wait before sending more."}
	case status == 401:
		return RefusedKey("unknown")
	case status == 403:
		return &Error{Kind: KindForbidden, Message: "The gateway's configuration does not allow this request."}
	case status == 404:
		return &Error{Kind: KindUnknownURL, Message: "This gateway does not serve this path. Check the client's base URL."}
	case status == 503:
		return Overloaded("The gateway is not accepting requests at the moment.")
	case status == 504:
		return &Error{Kind: KindTimeout, Message: "The gateway timed out. Try again."}
	case status >= 400 && status < 500:
		return invalid("", "", "A rule in the gateway's configuration rejected the request (HTTP %d).", status)
	}
	return Internal("The gateway failed to handle the request; its log has the reason.")
}

// upstreamFailure returns an error about the model server's answer.
func upstreamFailure(message string) *Error { return &Error{Kind: KindUpstream, Message: message} }

// foreignFailure is [upstreamFailure] with a text of the model server after the message.
func foreignFailure(message, text string) *Error {
	return &Error{Kind: KindUpstream, Message: message + text, logged: message + hidden}
}

// unreadable is the error of a stream whose events cannot be parsed.
func unreadable(err error) *Error {
	const message = "The model server's stream cannot be read"
	return &Error{Kind: KindUpstream, NoRetry: true, Message: message + ": " + err.Error() + ".", logged: message + "."}
}

// overfull is the error for an answer or event of the model server that exceeds a
// limit.
func overfull(what string) *Error {
	return upstreamFailure("The model server's answer cannot be read: it contains too many " + what + ".")
}

// garbled is the error for an answer or event that is not a JSON object.
func garbled(data []byte) *Error {
	text := plainMessage(string(data[:min(len(data), 4*maxMessage)]))
	if text == "" {
		return upstreamFailure("The model server's answer is empty.")
	}
	return foreignFailure("The model server did not send a valid JSON object: ", text)
}

// abortedUpstream is the error for an answer whose finish_reason reports a failure.
func abortedUpstream(reason string) *Error {
	return &Error{
		Kind:    KindUpstream,
		Message: "The model server aborted the answer (finish_reason " + reason + "). Try again.",
		logged:  "The model server aborted the answer. Try again.",
	}
}

// invalid is the error 400 for a field of the request.
func invalid(param, code, format string, args ...any) *Error {
	e := &Error{Kind: KindInvalidRequest, Param: param, Code: code, Message: fmt.Sprintf(format, args...)}
	logged := slices.Clone(args)
	for i, arg := range args {
		if _, ok := arg.(fromClient); ok {
			logged[i] = hidden
		}
	}
	if text := fmt.Sprintf(format, logged...); text != e.Message {
		e.logged = text
	}
	return e
}

// ResponseNotFound is the error for the id of a response that is not kept.
func ResponseNotFound(id string) *Error {
	return &Error{
		Kind: KindNotFound, Message: "Response with id '" + string(show(id)) + "' not found.",
		logged: "Response not found.",
	}
}

// wrongMethod is the error for an unsupported method. allow lists the supported ones.
func wrongMethod(method, path, allow string) *Error {
	path, logged := string(show(path)), "This path does not support the method; use "+allow+"."
	if method == "OPTIONS" { // a CORS preflight request
		return &Error{
			Kind: KindWrongMethod, Allow: allow, logged: logged,
			Message: "Web pages from this origin cannot call the API. Add the origin to `cors` in the gateway's " +
				"configuration, or call the API from a server. " + path + " supports " + allow + ".",
		}
	}
	return &Error{
		Kind: KindWrongMethod, Allow: allow, logged: logged,
		Message: path + " does not support " + string(show(method)) + "; use " + allow + ".",
	}
}

// unknownURL is the error for an unknown path.
func unknownURL(method, path string, d Dialect) *Error {
	if e := otherAPI(method, path, "one that ends in /v1"); e != nil {
		return e
	}
	fix := ". Check the path; the API's base URL ends in /v1."
	if d == Messages {
		fix = ". Check the path. Leave /v1 out of the base URL (ANTHROPIC_BASE_URL): Anthropic's clients add it."
	}
	return &Error{
		Kind: KindUnknownURL, Message: "Unknown request URL: " + string(show(method)+" "+show(path)) + fix,
		logged: "Unknown request URL" + fix,
	}
}

// NoVersion is the error for an API path without /v1, or with another path in front of it. base is the correct base URL
// of OpenAI's API.
func NoVersion(method, path, base string) *Error {
	if strings.Contains(path, "/v1/messages") { // Anthropic's clients add /v1
		base = strings.TrimSuffix(base, "/v1")
	}
	if e := otherAPI(method, path, base); e != nil {
		return e
	}
	const why = ". The API is under /v1"
	return &Error{
		Kind: KindUnknownURL,
		Message: "Unknown request URL: " + string(show(method)+" "+show(path)) + why + ": set the client's base URL to " +
			string(show(base)) + ".", logged: "Unknown request URL" + why + ".",
	}
}

// missing is the error for a missing required field.
func missing(param string) *Error {
	message := "Missing required parameter: " + param + "."
	if param == "model" {
		message += " " + listsModels
	}
	return invalid(param, "missing_required_parameter", "%s", message)
}

// wrongType is the error for a field of the wrong type.
func wrongType(param, want string, raw []byte) *Error {
	return invalid(param, "invalid_type", "Invalid type for %s: expected %s, got %s.", param, want, jsonscan.TypeName(raw))
}

// byteSize formats a number of bytes.
func byteSize(n int64) string {
	const mebi = 1 << 20
	if n >= mebi && n%mebi == 0 {
		return fmt.Sprintf("%d MiB", n/mebi)
	}
	return fmt.Sprintf("%d bytes", n)
}

// fromClient is a text of the client in a message. It could be content, so logs have [hidden]
// in its place.
type fromClient string

const hidden = "…"

// unprintable are characters that can change how a line reads.
var unprintable = regexp.MustCompile(`[\pC\p{Zl}\p{Zp}]`)

// show makes a name that a client chose suitable for a message.
func show(name string) fromClient {
	const limit = 128
	name = truncate(strings.ToValidUTF8(name, "\uFFFD"), limit)
	return fromClient(unprintable.ReplaceAllString(name, "\uFFFD"))
}

// truncate truncates s to at most limit bytes, including "…", at a rune boundary.
func truncate(s string, limit int) string {
	const ellipsis = "…"
	if len(s) <= limit {
		return s
	}
	cut := limit - len(ellipsis)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + ellipsis
}
