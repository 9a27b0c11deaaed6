package dialect

import "fmt"

// UnknownModel is the error for a model that is not registered, or that is out of the
// key's scope. similar is a model that the client may have meant, or "".
func UnknownModel(model, similar string) *Error {
	const message = "The model `%s` does not exist or you do not have access to it."
	e := modelError(KindUnknownModel, 0, message)(model)
	e.Param, e.logged = "model", fmt.Sprintf(message, hidden)
	// Claude Code reads the beginning of this text.
	text := "model: " + string(show(model)) + " is not a model of this gateway for this key; GET /v1/models lists yours."
	if similar != "" {
		e.Message += " Did you mean `" + similar + "`?"
		text += " Did you mean " + similar + "?"
	} else {
		e.Message += " " + listsModels
	}
	e.texts = map[Dialect]string{Messages: text}
	return e
}

// OutOfScope is [UnknownModel] for a model that the gateway refuses because of the key's scope.
func OutOfScope(model, similar string) *Error {
	e := UnknownModel(model, similar)
	e.class = ClassPolicy
	return e
}

// listsModels is the fix for a wrong model.
const listsModels = "GET /v1/models lists the models that this key may use."

// PromptTooLong is the error for a prompt of n tokens that is longer than the model's context window. cut means that
// the model server would not refuse it. Clients compact the conversation if they find these words and numbers.
func PromptTooLong(n, window int, cut bool) *Error {
	openai := fmt.Sprintf("This model's maximum context length is %d tokens. However, your messages resulted in %d "+
		"tokens. Please reduce the length of the messages.", window, n)
	anthropic := fmt.Sprintf("prompt is too long: %d tokens > %d maximum", n, window)
	if cut {
		const remedy = "The model server cuts longer prompts. If it is Ollama, set OLLAMA_CONTEXT_LENGTH there."
		openai, anthropic = openai+" "+remedy, anthropic+". "+remedy
	}
	return &Error{Kind: KindContextLength, Message: openai, texts: map[Dialect]string{Messages: anthropic}}
}

// NoRoom is the error for a prompt of n tokens that fits into the context window, but not with its limit of an answer.
// Claude Code finds these words and numbers, and sends the request with a lower limit.
func NoRoom(n, limit, window int64) *Error {
	const message = "input length and `max_tokens` exceed context limit: %d + %d > %d, decrease input length or " +
		"`max_tokens` and try again"
	return &Error{Kind: KindInvalidRequest, Message: fmt.Sprintf(message, n, limit, window)}
}

// EmbeddingsOnly is the error for a request to an embeddings model that is for a chat model.
func EmbeddingsOnly(model string) *Error {
	return invalid("model", "wrong_model_kind",
		"The model `%s` is an embeddings model and serves only POST /v1/embeddings. Choose a chat model; GET /v1/models "+
			"has the `kind` of each.", model)
}

// NoVoiceModel is the error for a request for voices that names no model, if not exactly one is for speech.
func NoVoiceModel() *Error {
	e := missing("model")
	e.Message = "Missing query parameter: model. GET /v1/audio/models lists the models for speech that this key may use."
	return e
}

// The errors of models and of the routes to them.
var (
	// Offline: no connector of the deployment is online.
	Offline = unserved(modelError(KindOffline, 5,
		"The model `%s` is offline: its connector is not connected to this gateway. If this persists, check that the "+
			"connector is running."))
	// NoRoute: the connector does not have the deployment's upstream. Their names are not disclosed to clients.
	NoRoute = modelError(KindUnreachable, noRetry,
		"The model `%s` is misconfigured: its connector has no upstream for it. The gateway's log has the details.")
	// UpstreamUnreachable: the connector cannot connect to the model server.
	UpstreamUnreachable = unserved(modelError(KindUnreachable, 0,
		"The connector cannot connect to the model server of `%s`. Check that the server is running at the address in the "+
			"connector's configuration."))
	// UpstreamReset: the connection to the model server was lost before it answered.
	UpstreamReset = modelError(KindUnreachable, 0,
		"The connection to the model server of `%s` was lost before it answered. It may have crashed or restarted. "+
			"Try again.")
	// Silent: the connector has missed pings before the model server answered. The outcome of the request is unknown.
	Silent = modelError(KindOffline, 1,
		"The connector of `%s` is not responding. The request was not sent to another one because a model may already have "+
			"seen it.")
	// TunnelLost: the tunnel was lost before the model server answered. The outcome of the request is unknown.
	TunnelLost = modelError(KindUnreachable, 0,
		"The connection to the connector of `%s` was lost before the model server answered. Try again.")
	// UpstreamRefused: the connector rejected the request.
	UpstreamRefused = modelError(KindUnreachable, noRetry,
		"The connector rejected the request for `%s`. Check the upstream of the deployment, and the connector's log.")
	// UpstreamTooLarge: the connector does not accept a message of this size.
	UpstreamTooLarge = modelError(KindTooLarge, 0,
		"The connector of `%s` does not accept a message of this size. Send less, or upgrade the connector.")
	// UpstreamCompressed: the model server's answer has an unsupported compression.
	UpstreamCompressed = modelError(KindUpstream, noRetry,
		"The model server of `%s` compressed its answer although it was asked not to, and the gateway cannot decompress "+
			"it. Turn off compression in the model server, or in the proxy in front of it.")
	// UpstreamMalformed: the model server's answer violates HTTP.
	UpstreamMalformed = modelError(KindUpstream, 0,
		"The model server of `%s` sent an answer that is not valid HTTP. The connector's log has the details. Fix the "+
			"model server, or the proxy in front of it.")
	// ConnectorBusy: the connector has reached its memory limit.
	ConnectorBusy = modelError(KindOverloaded, 5,
		"The connector of `%s` has reached its memory limit (max_memory). Send less at a time, or raise its max_memory.")
	// QueueFull: the deployment's queue is full.
	QueueFull = unserved(modelError(KindRateLimit, 5,
		"The model `%s` is busy and its queue is full (queue_full). Send fewer requests at a time."))
	// QueueTimeout: the request timed out in the deployment's queue.
	QueueTimeout = modelError(KindRateLimit, 5,
		"The model `%s` is busy and the request timed out in its queue (queue_timeout). Send fewer requests at a time.")
)

// noRetry is passed to modelError if the client should not retry.
const noRetry = -1

// modelError returns a constructor of errors about a model. message has a verb for the
// model's name. wait is the number of seconds before a retry, 0 if unknown.
func modelError(kind *Kind, wait int, message string) func(model string) *Error {
	return func(model string) *Error {
		return &Error{
			Kind: kind, RetryAfter: max(wait, 0), NoRetry: wait == noRetry,
			Message: fmt.Sprintf(message, show(model)),
		}
	}
}

// unserved returns a constructor of errors that a fallback can prevent.
func unserved(construct func(model string) *Error) func(model string) *Error {
	return func(model string) *Error {
		e := construct(model)
		e.Unserved = true
		return e
	}
}

// FirstTokenTimeout is the error for an answer without a first token within limit, such as "2m".
func FirstTokenTimeout(model, limit string) *Error {
	return modelError(KindTimeout, 0, "The model server of `%s` did not send a first token within "+limit+" "+
		"(first_token_timeout). It is busy with other requests or a long prompt, or it hangs. Try again; if this persists, "+
		"restart the model server.")(model)
}

// JudgeTimeout is the error for a judge that is too slow.
var JudgeTimeout = modelError(KindTimeout, noRetry, "The model server of `%s` did not judge tool calls within 20s. "+
	"Choose a faster model in the option safeguards.")

// JudgeGone is the error for a judge that does not exist.
var JudgeGone = modelError(KindUnknownModel, noRetry,
	"The option safeguards names the model `%s`, which does not exist. Choose another model, or off.")

// JudgeUnclear is the error for a judge whose answer has no verdict.
var JudgeUnclear = modelError(KindUpstream, noRetry,
	"The model `%s` did not answer with verdicts about tool calls, or its server did not count the tokens. Choose "+
		"another model in the option safeguards.")

// AnswerTooLarge is the error for a whole answer of more than limit bytes.
func AnswerTooLarge(model string, limit int64) *Error {
	return modelError(KindUpstream, noRetry,
		"The answer of the model server of `%s` exceeds this gateway's limit ("+byteSize(limit)+"). Request less at a "+
			"time, or a streamed answer.")(model)
}

// StreamTooLarge is the error of a stream that requires a buffer of more than limit
// bytes.
func StreamTooLarge(model string, limit int64) *Error {
	return modelError(KindUpstream, noRetry,
		"The stream of the model server of `%s` exceeds this gateway's limit for one answer ("+byteSize(limit)+
			"). Request less at a time.")(model)
}
