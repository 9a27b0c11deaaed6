package dialect

import (
	"slices"
	"strings"
)

// otherAPIs are APIs of other servers that a gateway does not have, by their paths below /v1.
var otherAPIs = [...]struct{ path, name string }{
	{compactPath, "compaction"},
	{"/audio", "such audio"},
	{"/images", "such image"},
	{"/videos", "video"},
	{"/realtime", "realtime"},
	{"/moderations", "moderation"},
	{"/files", "file"},
	{"/uploads", "upload"},
	{"/containers", "container"},
	{"/vector_stores", "vector store"},
	{"/batches", "batch"},
	{"/messages/batches", "batch"},
	{"/assistants", "assistants"},
	{"/threads", "assistants"},
	{"/conversations", "conversations"},
	{"/fine_tuning", "fine-tuning"},
	{"/evals", "evaluation"},
	{"/skills", "skills"},
	{"/agents", "agents"},
	{"/sessions", "sessions"},
}

const compactPath = "/responses/compact"

// ollamaPaths are the paths of Ollama's own API.
var ollamaPaths = [...]string{
	"/api/chat", "/api/generate", "/api/embed", "/api/embeddings", "/api/tags", "/api/show", "/api/ps", "/api/version",
	"/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete",
}

// served lists the paths of the APIs that a gateway has.
var served = func() string {
	var paths []string
	for _, r := range routes {
		if r.upstream != "" {
			paths = append(paths, r.path)
		}
	}
	return strings.Join(paths, ", ") + " and " + modelsPath
}()

// otherAPI returns the error for a path of an API that a gateway does not have, with or without
// /v1, or nil: a correct base URL would not help. base is the base URL for OpenAI's API.
func otherAPI(method, path, base string) *Error {
	shown := string(show(method) + " " + show(path))
	path = strings.TrimPrefix(path, "/v1")
	if slices.Contains(ollamaPaths[:], path) {
		const what, fix = "This gateway does not serve Ollama's own API", "choose an OpenAI-compatible provider in the client"
		return &Error{
			Kind: KindUnknownURL, logged: what + ": " + fix + ".",
			Message: what + " (" + shown + "): " + fix + ", and set the client's base URL to " + string(show(base)) + ".",
		}
	}
	if slices.ContainsFunc(routes[:], func(r route) bool { return r.path == "/v1"+path }) {
		return nil
	}
	for _, api := range otherAPIs {
		if within(path, api.path) {
			what, fix := "This gateway has no "+api.name+" API", ". It serves "+served+"."
			if api.path == compactPath {
				fix = ". To compact, end the input of POST /v1/responses with an item of type compaction_trigger."
			}
			return &Error{Kind: KindUnknownURL, Message: what + " (" + shown + ")" + fix, logged: what + fix}
		}
	}
	return nil
}
