package compat

import (
	"bytes"
	"strings"
)

// RoutingNames are fields that make a server use another model, server, file or credential than
// those of the deployment, for which the key's scope was checked. * stands for any ending.
var RoutingNames = [...]string{
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

// IsRouting reports whether a key is a field of RoutingNames. Some JSON parsers ignore the case of keys.
func IsRouting(key []byte, name string) bool {
	if prefix, open := strings.CutSuffix(name, "*"); open {
		return len(key) > len(prefix) && bytes.EqualFold(key[:len(prefix)], []byte(prefix))
	}
	return bytes.EqualFold(key, []byte(name))
}
