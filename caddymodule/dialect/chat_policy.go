package dialect

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// marks are properties of a body that its nested keys reveal during the first scan.
// Most bodies have none and need no second scan.
type marks = uint8

const (
	markMedia     marks = 1 << iota // a key whose value may be the address of an image, file etc.
	markDeveloper                   // the role developer
	markCalls                       // a key of tool calls
)

// markOf returns the mark of a key. rest starts with its value.
func markOf(key, rest []byte) marks {
	switch string(key) {
	case "role":
		if bytes.HasPrefix(rest, []byte(`"`+roleDeveloper+`"`)) {
			return markDeveloper
		}
		return 0
	case "content", "type", "text", "name":
		return 0
	case "tool_calls", "function_call":
		return markCalls
	}
	const shortest = len(`\u0075rl`)
	if mayBeAddress(key, rest) || len(key) >= shortest && bytes.IndexByte(key, '\\') >= 0 {
		return markMedia
	}
	return 0
}

// noteMarks records the marks of a member.
func (r *ChatRequest) noteMarks(m *jsonscan.Members) {
	name := m.Name()
	if isMedia(r.kind) && r.remote == "" {
		if path, found := findRemoteField(string(name), m.Raw()); found {
			r.remote = string(name) + path
		}
		return
	}
	if m.Seen&markMedia != 0 && (isLike(name, "messages") || isLike(name, "input")) {
		r.media = append(r.media, member{m.Key, m.Value})
	}
	if m.Seen&markDeveloper != 0 && r.kind == ChatCompletions && string(name) == "messages" {
		r.developer = m.Value
	}
}

// routingNames are fields that make a server use another model, server, file or credential than
// those of the deployment, for which the key's scope was checked. * stands for any ending.
var routingNames = [...]string{
	// OpenRouter, LM Studio
	"models", "route", "draft_model",
	// LiteLLM
	"fallbacks", "default_fallbacks", "context_window_fallbacks", "context_window_fallback_dict",
	"content_policy_fallbacks", "model_list", "user_config", "deployment_id", "custom_llm_provider",
	"extra_body", "extra_headers", "headers", "litellm_params_template", "litellm_embedding_config",
	"litellm_credential_name",
	"api_base", "base_url", "deployment_url", "s3_endpoint_url", "sagemaker_base_url",
	"api_key", "aws_*", "azure_*", "vertex_*",
	// SGLang, vLLM
	"lora_path", "bootstrap_*", "kv_transfer_params",
}

// routingByLetter contains routingNames by their first letter.
var routingByLetter = func() (names [256][]string) {
	for _, name := range routingNames {
		names[name[0]] = append(names[name[0]], name)
	}
	return names
}()

// noteRouting records a field of routingNames.
func (r *ChatRequest) noteRouting(key, value []byte) {
	if name := routingName(key); name != "" && !jsonscan.IsNull(value) {
		r.routing = name
	}
}

// routingName returns which of routingNames a key is, or "". Some JSON parsers ignore the case of keys.
func routingName(key []byte) string {
	if len(key) == 0 {
		return ""
	}
	names := routingByLetter[key[0]|0x20]
	if key[0] >= utf8.RuneSelf { // some letters of Unicode are taken for those of ASCII
		names = routingNames[:]
	}
	for _, name := range names {
		if isRouting(key, name) {
			return name
		}
	}
	return ""
}

// isRouting reports whether a key is a field of routingNames.
func isRouting(key []byte, name string) bool {
	if prefix, open := strings.CutSuffix(name, "*"); open {
		return len(key) > len(prefix) && bytes.EqualFold(key[:len(prefix)], []byte(prefix))
	}
	return isLike(key, name)
}

// applyOptions applies the deployment's options. It returns an error if they do not
// allow the request, or if it has a field of routingNames.
func (r *ChatRequest) applyOptions(o compat.Options) *Error {
	if r.routing != "" {
		return invalid(r.routing, "unsupported_parameter", "Unsupported parameter: %s. The deployment of `model` "+
			"determines the model server and its credentials. Omit the parameter.", r.routing)
	}
	if o.RemoteMedia != compat.RemoteAllow {
		if r.remote != "" {
			return remoteMedia(r.remote)
		}
		for _, at := range r.media {
			if err := r.checkMedia(at); err != nil {
				return err
			}
		}
	}
	if r.developer.End == 0 {
		return nil
	}
	var err *Error
	r.folds, err = foldDeveloper(r.body, r.developer.Start)
	return err
}

// checkMedia checks the addresses in messages or in an embedding's input.
func (r *ChatRequest) checkMedia(at member) *Error {
	path, found := findRemote(at.value.Bytes(r.body), inMessage)
	if !found {
		return nil
	}
	return remoteMedia(jsonscan.Unquote(at.key.Bytes(r.body)) + path)
}

// remoteMedia returns the error for a field with the address of media.
func remoteMedia(path string) *Error {
	return invalid(path, "", "Invalid value for %s: "+noRemoteMedia, show(path))
}
