package dialect

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// InvalidKey is the answer to a request whose key is missing, unknown or
// revoked, as reason says.
func InvalidKey(reason string) *Error {
	message := "Unknown API key. Check it for missing characters, or create a new one."
	switch reason {
	case "missing":
		message = "No API key. Send it as `Authorization: Bearer sk-svc-…` or as `x-api-key: sk-svc-…`."
	case "revoked":
		message = "This API key has been revoked. Create a new one."
	}
	return &Error{Kind: KindInvalidKey, Message: message}
}

// RevokedKey ends a stream whose key was revoked while it ran.
func RevokedKey() *Error {
	return &Error{Kind: KindInvalidKey, Message: "The API key was revoked during this request. The answer is incomplete."}
}

// UnknownModel is the answer to a model that is not registered, or that the
// key must not know of.
func UnknownModel(model string) *Error {
	e := ofModel(KindUnknownModel, 0, "The model `%s` does not exist or you do not have access to it.")(model)
	e.Param, e.messagesMessage = "model", "model: "+show(model)
	return e
}

// BodyTooLarge is the answer to a request body of more than limit bytes.
func BodyTooLarge(limit int64) *Error {
	return &Error{Kind: KindTooLarge, Message: "The request body exceeds this gateway's limit (max_body, " + byteSize(limit) + "), compressed or decompressed. Send less, or raise max_body."}
}

// ReferencesTooLarge is the answer to a request that is larger than limit bytes
// together with what it refers to of kept responses: a few bytes can name much.
func ReferencesTooLarge(limit int64) *Error {
	return &Error{Kind: KindTooLarge, Message: "The request, including the items of previous_response_id and item_reference, exceeds this gateway's limit (max_body, " + byteSize(limit) + "). Refer to fewer items, or raise max_body."}
}

// UnsupportedEncoding is the answer to a Content-Encoding that the gateway
// cannot undo.
func UnsupportedEncoding() *Error {
	return &Error{Kind: KindUnsupportedEncoding, Message: "The request's Content-Encoding is not supported. Use gzip, zstd, or none."}
}

// UnreadableBody is the answer to a body that broke off or does not decompress.
func UnreadableBody() *Error {
	return &Error{Kind: KindInvalidRequest, Message: "The request body could not be read: it is incomplete, or does not match its Content-Encoding."}
}

// SlowBody is the answer to a body that comes so slowly that it would stay in
// memory for too long.
func SlowBody() *Error {
	return &Error{Kind: KindRequestTimeout, Message: "The request body arrived too slowly. Send at least 64 KiB per minute."}
}

// Internal is the answer when the gateway itself is at fault; message must not
// hold more than the caller may know.
func Internal(message string) *Error {
	return &Error{Kind: KindInternal, Message: message}
}

// The answers to requests whose model, or the way to it, is at fault.
var (
	// Offline: no connector of the deployment is connected.
	Offline = ofModel(KindOffline, 5, "The model `%s` is offline: its connector is not connected to this gateway. If this persists, start the connector.")
	// NoRoute: the deployment names no upstream of its connector. Clients need not know the names of either.
	NoRoute = ofModel(KindUnreachable, noRetry, "The model `%s` is not configured: it has no model server. The gateway's log has the details.")
	// UpstreamUnreachable: the connector cannot connect to the model server.
	UpstreamUnreachable = ofModel(KindUnreachable, 0, "The connector cannot connect to the model server of `%s`. Check that the server is running at the address in the connector's configuration.")
	// UpstreamReset: the model server, or the tunnel to it, broke before it answered.
	UpstreamReset = ofModel(KindUnreachable, 0, "The connection to the model server of `%s` was lost before it answered. It may have crashed or restarted. Try again.")
	// TunnelLost: the connector went away before the model server answered, so that the fate of the request is unknown.
	TunnelLost = ofModel(KindUnreachable, 0, "The connection to the connector of `%s` was lost before the model server answered. Try again.")
	// UpstreamRefused: the connector does not forward what the gateway asked for.
	UpstreamRefused = ofModel(KindUnreachable, noRetry, "The connector rejected the request for `%s`. Check the upstream of the deployment, and the connector's log.")
	// UpstreamTooLarge: the other end of the tunnel does not accept a message of this size.
	UpstreamTooLarge = ofModel(KindTooLarge, 0, "The connector of `%s` does not accept a message of this size. Send less, or upgrade the connector.")
	// UpstreamCompressed: the model server compressed its answer in a way that cannot be undone.
	UpstreamCompressed = ofModel(KindUpstream, noRetry, "The model server of `%s` compressed its answer although it was asked not to, and the gateway cannot decompress it. Turn off compression in the model server, or in the proxy in front of it.")
	// ConnectorBusy: the connector has no memory for the request.
	ConnectorBusy = ofModel(KindOverloaded, 5, "The connector of `%s` has reached its memory limit (max_memory). Send less at a time, or raise its max_memory.")
	// ConnectorFull: the connectors of the deployment have as many requests as they take.
	ConnectorFull = ofModel(KindRateLimit, 5, "The connector of the model `%s` has reached its limit of concurrent requests (queue_full). Send fewer at a time, or raise max_requests in its configuration.")
	// QueueFull: as many requests as may wait for the deployment do so already.
	QueueFull = ofModel(KindRateLimit, 5, "The model `%s` is busy and its queue is full (queue_full). Send fewer requests at a time.")
	// QueueTimeout: the request has waited for its turn for as long as it may.
	QueueTimeout = ofModel(KindRateLimit, 5, "The model `%s` is busy and the request timed out in its queue (queue_timeout). Send fewer requests at a time.")
)

// noRetry is for ofModel: the client is not to try again.
const noRetry = -1

// ofModel returns the errors of a kind about a model, whose name stands in the
// message. wait is in how many seconds to try again, 0 if that is not known.
func ofModel(kind Kind, wait int, message string) func(model string) *Error {
	return func(model string) *Error {
		return &Error{Kind: kind, RetryAfter: max(wait, 0), NoRetry: wait == noRetry, Message: fmt.Sprintf(message, show(model))}
	}
}

// AnswerTooLarge is the answer when the model server's answer, which is no
// stream, has more than limit bytes.
func AnswerTooLarge(model string, limit int64) *Error {
	return ofModel(KindUpstream, noRetry, "The answer of the model server of `%s` exceeds this gateway's limit ("+byteSize(limit)+"). Request less at a time, or a stream.")(model)
}

// StreamTooLarge ends a stream of which the gateway has to remember more than
// limit bytes.
func StreamTooLarge(model string, limit int64) *Error {
	return ofModel(KindUpstream, noRetry, "The stream of the model server of `%s` exceeds this gateway's limit for one answer ("+byteSize(limit)+"). Request less at a time.")(model)
}

// Overloaded is the answer when the gateway takes no more requests, as when it
// shuts down.
func Overloaded(message string) *Error {
	return &Error{Kind: KindOverloaded, RetryAfter: 5, Message: message}
}

// MemoryFull is the answer to a request for which the gateway has no memory.
func MemoryFull() *Error {
	return Overloaded("The gateway has reached its memory limit for requests and answers (max_memory), in total or for this key. Send less at a time, or raise max_memory.")
}

// FromHandler is the answer when another handler of the gateway, such as a
// rate limit, ended the request with an HTTP status.
func FromHandler(status int) *Error {
	switch {
	case status == 429:
		return &Error{Kind: KindRateLimit, Message: "Too many requests to this gateway. Wait before you send the next one."}
	case status == 401:
		return InvalidKey("unknown")
	case status == 403:
		return &Error{Kind: KindForbidden, Message: "This gateway does not allow the request."}
	case status == 404:
		return &Error{Kind: KindUnknownURL, Message: "This gateway does not serve this path."}
	case status == 503:
		return Overloaded("The gateway does not accept requests at the moment.")
	case status == 504:
		return &Error{Kind: KindTimeout, Message: "The gateway timed out. Try again."}
	case status >= 400 && status < 500:
		return invalid("", "", "A rule of this gateway rejects the request (HTTP %d).", status)
	}
	return Internal("A handler of the gateway failed; its log has the reason.")
}

// ofUpstream is an error of the model server's answer.
func ofUpstream(message string) *Error { return &Error{Kind: KindUpstream, Message: message} }

// StreamBroken ends a stream whose upstream broke off before it was finished.
func StreamBroken() *Error {
	return ofUpstream("The upstream stream ended unexpectedly: the model server stopped before the answer was complete. Try again.")
}

// TunnelBroken ends a stream whose connector went away.
func TunnelBroken() *Error {
	return ofUpstream("The stream ended unexpectedly: the connection to the model server's connector was lost before the answer was complete. Try again.")
}

// unreadable ends a stream whose upstream's events cannot be read on.
func unreadable(err error) *Error {
	return &Error{Kind: KindUpstream, NoRetry: true, Message: "The model server's stream cannot be read: " + err.Error() + "."}
}

// overfull is the answer when the model server's answer, or an event of it,
// holds more of something than can be meant.
func overfull(what string) *Error {
	return ofUpstream("The model server's answer cannot be read: it contains too many " + what + ".")
}

// brokenArguments ends a stream when the arguments of a tool call that were sent
// can no longer become JSON.
func brokenArguments() *Error {
	return ofUpstream("The model produced invalid tool arguments: they are not a JSON object. Try again.")
}

// namelessCall ends an answer with a tool call that names no tool.
func namelessCall() *Error {
	return ofUpstream("The model server sent the arguments of a tool call without the tool's name. Try again.")
}

// garbled is the Error for an answer, or an event, that is not a JSON object.
func garbled(data []byte) *Error {
	text := plainMessage(string(data[:min(len(data), 4*maxMessage)]))
	if text == "" {
		return ofUpstream("The model server's answer is empty.")
	}
	return ofUpstream("The model server did not send a valid JSON object: " + text)
}

// noChoices is the answer when a whole answer that should be streamed holds
// nothing to stream.
func noChoices() *Error { return ofUpstream("The model server's answer contains no choices.") }

// noSummary is the answer when the model wrote no whole summary of a conversation.
func noSummary() *Error {
	return ofUpstream("The model did not write a complete summary of the conversation. Try again, or continue with the whole conversation.")
}

// abortedUpstream ends a stream whose upstream reports, by its finish_reason, that
// it did not finish.
func abortedUpstream(reason string) *Error {
	return ofUpstream("The model server aborted the answer (finish_reason " + reason + "). Try again.")
}

// invalid is a 400 about a field of the request.
func invalid(param, code, format string, args ...any) *Error {
	return &Error{Kind: KindInvalidRequest, Param: param, Code: code, Message: fmt.Sprintf(format, args...)}
}

// ResponseNotFound is the answer to the id of a response that is not kept.
func ResponseNotFound(id string) *Error {
	return &Error{Kind: KindNotFound, Message: "Response with id '" + show(id) + "' not found."}
}

// wrongMethod is the answer to a path of ours with a method that it does not
// take; allow is the ones it does.
func wrongMethod(method, path, allow string) *Error {
	if method == "OPTIONS" { // which browsers send before a request to another origin
		return &Error{Kind: KindWrongMethod, Allow: allow, Message: "Web pages of other origins cannot call this API: the gateway allows no cross-origin requests (CORS). " +
			"Call it from a server, or from a page of the gateway's own origin. " + show(path) + " supports " + allow + "."}
	}
	return &Error{Kind: KindWrongMethod, Allow: allow, Message: show(path) + " does not support " + show(method) + "; use " + allow + "."}
}

// upgradeRequired answers a WebSocket handshake for responses: clients that
// try one fall back to POST at once on 426, and on no other status.
func upgradeRequired() *Error {
	return &Error{Kind: KindUpgradeRequired, Message: "WebSocket is not supported here. Send POST /v1/responses."}
}

// unknownURL answers a path that is not served.
func unknownURL(method, path string) *Error {
	return &Error{Kind: KindUnknownURL, Message: "Unknown request URL: " + show(method) + " " + show(path) + ". Check the path; the API's base URL ends in /v1."}
}

// NoVersion answers a path of the API without /v1; base is the right base URL.
func NoVersion(method, path, base string) *Error {
	return &Error{Kind: KindUnknownURL, Message: "Unknown request URL: " + show(method) + " " + show(path) + ". The API is below /v1: set the client's base URL to " + show(base) + "."}
}

// missing is the answer to a body without a field that must be there.
func missing(param string) *Error {
	message := "Missing required parameter: " + param + "."
	if param == "model" {
		message += " GET /v1/models lists the models that this key may use."
	}
	return invalid(param, "missing_required_parameter", "%s", message)
}

// wrongType is the answer to a field whose value has the wrong type.
func wrongType(param, want string, raw []byte) *Error {
	return invalid(param, "invalid_type", "Invalid type for %s: expected %s, got %s.", param, want, jsonscan.TypeName(raw))
}

// byteSize shows a number of bytes.
func byteSize(n int64) string {
	const mebi = 1 << 20
	if n >= mebi && n%mebi == 0 {
		return fmt.Sprintf("%d MiB", n/mebi)
	}
	return fmt.Sprintf("%d bytes", n)
}

// show cuts a name that a client chose to what fits into a message.
func show(name string) string {
	const limit = 128
	return truncate(strings.ToValidUTF8(name, "\uFFFD"), limit)
}

// truncate cuts s to at most limit bytes, "…" included, at the edge of a rune.
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
