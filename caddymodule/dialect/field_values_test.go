package dialect

// apiParts are the parts of the requests of anthropic-sdk-go 1.84 and openai-go 3.98, and those that clients send in
// addition.
var apiParts = []struct {
	dialect     Dialect
	kind, names string
}{
	{Messages, "Field", `max_tokens messages model inference_geo temperature top_k top_p container
		fallback_credit_token fallbacks speed cache_control compaction context_management diagnostics mcp_servers metadata
		output_config output_format service_tier stop_sequences stream system thinking tool_choice tools
		betas safeguards thread user_profile_id`},
	{Messages, "Block", `text image document search_result thinking redacted_thinking tool_use tool_result
		server_tool_use web_search_tool_result web_fetch_tool_result advisor_tool_result code_execution_tool_result
		bash_code_execution_tool_result text_editor_code_execution_tool_result tool_search_tool_result mcp_tool_use
		mcp_tool_result container_upload compaction tool_addition tool_removal mcp_tool_listing fallback
		tool_reference browser_state mid_conv_system`},
	{Messages, "Tool", `custom bash_20241022 bash_20250124 code_execution_20250522 code_execution_20260521
		browser_toolset_20260801 computer_20241022 memory_20250818 computer_20250124 text_editor_20241022
		computer_20251124 computer_toolset_20260801 text_editor_20250728 web_search_20250305 web_fetch_20250910
		web_search_20260318 web_fetch_20260318 advisor_20260301 tool_search_tool_bm25_20251119
		tool_search_tool_regex_20251119 mcp_toolset`},
	{Responses, "Field", `background instructions max_output_tokens max_tool_calls parallel_tool_calls
		previous_response_id prompt_cache_key safety_identifier store temperature top_logprobs top_p user
		context_management conversation include metadata moderation prompt prompt_cache_retention service_tier
		stream stream_options truncation access_programs image input model prompt_cache_options reasoning text tool_choice
		tools client_metadata frequency_penalty presence_penalty personality`},
	{Responses, "Item", `message file_search_call computer_call computer_call_output web_search_call function_call
		function_call_output tool_search_call tool_search_output additional_tools configuration_update reasoning
		compaction image_generation_call code_interpreter_call local_shell_call local_shell_call_output shell_call
		shell_call_output apply_patch_call apply_patch_call_output mcp_list_tools mcp_approval_request
		mcp_approval_response mcp_call custom_tool_call custom_tool_call_output compaction_trigger item_reference
		program program_output`},
	{Responses, "Content", `input_text output_text text refusal input_image input_file input_audio`},
	{Responses, "Tool", `function file_search computer computer_use_preview web_search web_search_2025_08_26
		web_search_preview web_search_preview_2025_03_11 mcp code_interpreter programmatic_tool_calling image_generation
		local_shell shell custom namespace tool_search apply_patch`},
}

// passedFields are the fields of the current APIs that have no row of their own.
var passedFields = map[Dialect]string{
	Chat: `frequency_penalty logprobs presence_penalty safety_identifier seed store temperature top_logprobs top_p
		parallel_tool_calls user audio logit_bias metadata modalities moderation prompt_cache_retention service_tier stop
		verbosity function_call functions prediction prompt_cache_options response_format tool_choice web_search_options
		best_of echo suffix dimensions encoding_format`,
}

// fieldValues are values of fields, for those that need more than any value. A condition follows after " with ".
var fieldValues = map[Dialect]map[string]string{
	Chat: {
		"model":                        `"other"`,
		"messages":                     `[{"role":"user","content":[{"type":"text","text":"v"}]}]`,
		"messages with role developer": `[{"role":"developer","content":"v"}]`,
		"messages with a URL": `[{"role":"user","content":[{"type":"image_url",` +
			`"image_url":{"url":"http://x/y"}}]}]`,
		"max_tokens":            `3`,
		"max_completion_tokens": `3`,
		"stream":                `true`,
		"stream_options":        `{"include_usage":false}`,
		"tools":                 `[{"type":"web_search"}]`,
		"n":                     `2`,
		"reasoning_effort":      `"low"`,
		"prompt_cache_key":      `"k"`,
	},
	Messages: {
		"model":    `"other"`,
		"messages": `[{"role":"user","content":[{"type":"text","text":"v"}]}]`,
		"messages with output_config": `[{"role":"user","content":"v"},{"role":"system","content":"s",` +
			`"output_config":{"effort":"low"}}]`,
		"system":                      `"s"`,
		"max_tokens":                  `3`,
		"temperature":                 `0.5`,
		"top_p":                       `0.5`,
		"top_k":                       `5`,
		"stop_sequences":              `["s"]`,
		"stream":                      `true`,
		"tools":                       `[{"name":"g","input_schema":{}}]`,
		"tool_choice":                 `{"type":"any"}`,
		"thinking":                    `{"type":"enabled","budget_tokens":5000}`,
		"thinking.display":            `{"type":"adaptive","display":"omitted"}`,
		"thinking with between_tools": `{"type":"between_tools"}`,
		"thinking.block_binding":      `{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"error"}}`,
		"container.skills":            `{"skills":[{"type":"anthropic","skill_id":"pptx"}]}`,
		"tools with allowed_callers":  `[{"name":"g","input_schema":{},"allowed_callers":["code_execution_20260120"]}]`,
		"tools with enable_zoom":      `[{"type":"computer_20251124","name":"computer","enable_zoom":true}]`,
		"messages with citations": `[{"role":"user","content":[{"type":"document","source":{"type":"text","data":"d"},` +
			`"citations":{"enabled":true}}]}]`,
		"output_config.effort":      `{"effort":"low"}`,
		"output_config.format":      `{"format":{"type":"json_schema","schema":{"type":"object"}}}`,
		"output_config.task_budget": `{"task_budget":{"type":"tokens","total":5}}`,
		"output_format":             `{"type":"json_schema","schema":{"type":"object"}}`,
		"mcp_servers":               `[{"type":"url","url":"https://x.test","name":"x"}]`,
		"thread":                    `{"id":"thread_1"}`,
		"safeguards":                `[{"type":"dangerous_tool_use","classifier_context":{}}]`,
		"compaction":                `{"type":"summary"}`,
		"context_management with clear_thinking_*": `{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}`,
		"context_management with other edits":      `{"edits":[{"type":"clear_tool_uses_20250919"}]}`,
	},
	Responses: {
		"model":             `"other"`,
		"input":             `"v"`,
		"instructions":      `"s"`,
		"max_output_tokens": `3`,
		"temperature":       `0.5`,
		"top_p":             `0.5`,
		"presence_penalty":  `0.5`,
		"frequency_penalty": `0.5`,
		"top_logprobs":      `3`,
		"stream":            `true`,
		"store":             `false`,
		"include with reasoning.encrypted_content":  `["reasoning.encrypted_content"]`,
		"include with message.output_text.logprobs": `["message.output_text.logprobs"]`,
		"include with other values":                 `["web_search_call.action.sources","file_search_call.results"]`,
		"tools":                                     `[{"type":"function","name":"g","parameters":{}}]`,
		"tool_choice":                               `{"type":"function","name":"f"}`,
		"parallel_tool_calls":                       `false`,
		"reasoning.effort":                          `{"effort":"low"}`,
		"reasoning.summary":                         `{"summary":"auto"}`,
		"reasoning.context":                         `{"context":"all_turns"}`,
		"reasoning.mode":                            `{"mode":"pro"}`,
		"input with phase":                          `[{"role":"assistant","content":"a","phase":"commentary"}]`,
		"tools with async":                          `[{"type":"function","name":"g","parameters":{},"async":true}]`,
		"tools with allowed_callers":                `[{"type":"custom","name":"g","allowed_callers":["programmatic"]}]`,
		"text.format": `{"format":{"type":"json_schema","name":"n",` +
			`"schema":{"type":"object"}}}`,
		"text.verbosity":       `{"verbosity":"low"}`,
		"previous_response_id": `"resp_kept"`,
		"prompt_cache_key":     `"k"`,
		"metadata":             `{"k":"v"}`,
		"truncation":           `"auto"`,
		"max_tool_calls":       `3`,
		"safety_identifier":    `"k"`,
		"background":           `true`,
		"conversation":         `"conv_1"`,
		"prompt":               `{"id":"pmpt_1"}`,
		"context_management":   `[{"type":"compaction","compact_threshold":1000}]`,
	},
}

// elementMembers are the members of blocks, items, parts and tools in addition to their type, by the names of rows.
// Members of a block may follow the role of its message.
var elementMembers = map[Dialect]map[string]string{
	Messages: {
		"text":                       `"text":"a"`,
		"image":                      `user "source":{"type":"url","url":"data:image/png;base64,AA=="}`,
		"document":                   `user "source":{"type":"text","data":"a","media_type":"text/plain"}`,
		"document with a PDF":        `user "source":{"type":"base64","data":"AA==","media_type":"application/pdf"}`,
		"image with a file":          `user "source":{"type":"file","file_id":"file_1"}`,
		"image with an assistant":    `assistant "source":{"type":"url","url":"data:image/png;base64,AA=="}`,
		"document with an assistant": `assistant "source":{"type":"text","data":"a"}`,
		"search_result":              `user "title":"a","source":"b","content":[{"type":"text","text":"c"}]`,
		"thinking":                   `assistant "thinking":"a","signature":"b"`,
		"redacted_thinking":          `assistant "data":"a"`,
		"tool_use":                   `assistant "id":"t","name":"f","input":{}`,
		"tool_result":                `user "tool_use_id":"t","content":"a"`,
		"tool_use with a user":       `user "id":"t","name":"f","input":{}`,
		"tool_reference":             `user "tool_name":"f"`,
		"browser_state":              `user "tabs":[]`,
		"server_tool_use":            `assistant "id":"t","name":"web_search","input":{"query":"a"}`,
		"web_search_tool_result": `assistant "tool_use_id":"t","content":[{"type":"web_search_result",` +
			`"title":"a","url":"https://b"}]`,
		"web_fetch_tool_result": `assistant "tool_use_id":"t","content":{"type":"web_fetch_result","url":"https://b",` +
			`"content":{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a"}}}`,
		"code_execution_tool_result": `assistant "tool_use_id":"t","content":{"type":"code_execution_result","stdout":"a",` +
			`"stderr":"","return_code":0,"content":[]}`,
		"bash_code_execution_tool_result": `assistant "tool_use_id":"t","content":{"type":"bash_code_execution_result",` +
			`"stdout":"a","stderr":"","return_code":0,"content":[]}`,
		"text_editor_code_execution_tool_result": `assistant "tool_use_id":"t","content":{` +
			`"type":"text_editor_code_execution_view_result","file_type":"text","content":"a"}`,
		"tool_search_tool_result": `assistant "tool_use_id":"t","content":{"type":"tool_search_tool_search_result",` +
			`"tool_references":[{"type":"tool_reference","tool_name":"a"}]}`,
		"advisor_tool_result": `assistant "tool_use_id":"t","content":{"type":"advisor_result",` +
			`"text":"a"}`,
		"mcp_tool_result":  `assistant "tool_use_id":"t","content":[{"type":"text","text":"a"}]`,
		"*_tool_result":    `assistant "tool_use_id":"t","content":[{"type":"text","text":"a"}]`,
		"mcp_tool_use":     `assistant "id":"t","name":"f","server_name":"s","input":{}`,
		"container_upload": `user "file_id":"file_1"`,
		"compaction":       `"content":"a"`,
		"mid_conv_system":  `"content":[{"type":"text","text":"a"}]`,
		"tool_addition with a definition": `system "tool":{"type":"tool_definition",` +
			`"definition":{"name":"g","input_schema":{}}}`,
		"tool_addition with a reference":     `system "tool":{"type":"tool_reference","name":"f"}`,
		"tool_addition with an unknown tool": `system "tool":{"type":"tool_reference","name":"x"}`,
		"tool_removal":                       `system "tool":{"type":"tool_reference","name":"f"}`,
		"mcp_tool_listing":                   `assistant "mcp_server_name":"s","tools":[{"name":"f"}]`,
		"fallback":                           `assistant "from":{"model":"a"},"to":{"model":"b"}`,

		"custom": `"name":"g","input_schema":{}`,
	},
	Responses: {
		"message":                                `"role":"user","content":"a"`,
		"message with role developer":            `"role":"developer","content":"a"`,
		"function_call":                          `"call_id":"t","name":"f","arguments":"{}"`,
		"custom_tool_call":                       `"call_id":"t","name":"f","input":"a"`,
		"local_shell_call":                       `"call_id":"t","action":{"type":"exec","command":["ls"]}`,
		"shell_call":                             `"call_id":"t","action":{"commands":["ls"]}`,
		"apply_patch_call":                       `"call_id":"t","operation":{"type":"delete_file","path":"a"}`,
		"*_call_output":                          `"call_id":"t","output":"a"`,
		"function_call_output":                   `"call_id":"t","output":"a"`,
		"custom_tool_call_output":                `"call_id":"t","output":"a"`,
		"local_shell_call_output":                `"id":"t","output":"a"`,
		"shell_call_output":                      `"call_id":"t","output":[]`,
		"apply_patch_call_output":                `"call_id":"t","output":"a","status":"completed"`,
		"reasoning":                              `"summary":[{"type":"summary_text","text":"a"}]`,
		"compaction":                             `"encrypted_content":"` + sealed(compactionMark, "a") + `"`,
		"compaction with another service's data": `"encrypted_content":"gAAA"`,
		"compaction_trigger":                     ``,
		"item_reference":                         `"id":"msg_kept"`,
		"additional_tools": `"role":"developer","tools":[{"type":"function","name":"g",` +
			`"parameters":{}}]`,
		"tool_search_call": `"call_id":"t","arguments":{"query":"a"}`,
		"tool_search_output": `"call_id":"t","tools":[{"type":"function","name":"g",` +
			`"parameters":{}}]`,
		"web_search_call": `"id":"t","status":"completed","action":{"type":"search",` +
			`"query":"a"}`,
		"file_search_call": `"id":"t","status":"completed","queries":["a"],` +
			`"results":[{"text":"b"}]`,
		"code_interpreter_call": `"id":"t","status":"completed","code":"a",` +
			`"container_id":"c","outputs":[{"type":"logs","logs":"b"}]`,
		"image_generation_call": `"id":"t","status":"completed","result":"AA=="`,
		"computer_call": `"id":"t","call_id":"t","status":"completed",` +
			`"action":{"type":"screenshot"}`,
		"computer_call_output": `"call_id":"t","output":{"type":"computer_screenshot",` +
			`"image_url":"data:image/png;base64,AA=="}`,
		"mcp_call": `"id":"t","name":"f","server_label":"s","arguments":"{}",` +
			`"output":"a"`,
		"mcp_list_tools":        `"id":"t","server_label":"s","tools":[]`,
		"mcp_approval_request":  `"id":"t","name":"f","server_label":"s","arguments":"{}"`,
		"mcp_approval_response": `"approval_request_id":"t","approve":true`,
		"program":               `"id":"t","call_id":"t","code":"a","fingerprint":"f"`,
		"program_output":        `"id":"t","call_id":"t","result":"a","status":"completed"`,
		"multi_agent_call":      `"id":"t","call_id":"t","action":"spawn_agent","arguments":"{}"`,
		"multi_agent_call_output": `"id":"t","call_id":"t","action":"spawn_agent",` +
			`"output":[{"type":"output_text","text":"a"}]`,
		"agent_message": `"author":"a","recipient":"b",` +
			`"content":[{"type":"input_text","text":"c"}]`,
		"reasoning with another service's data": `"summary":[],"encrypted_content":"gAAA"`,
		"configuration_update":                  `"reasoning":{"effort":"low"}`,

		"input_text":               `"text":"a"`,
		"output_text":              `"text":"a"`,
		"text":                     `"text":"a"`,
		"refusal":                  `"refusal":"a"`,
		"input_image":              `"image_url":"data:image/png;base64,AA=="`,
		"input_image with file_id": `"file_id":"file_1"`,
		"input_file":               `"filename":"a","file_data":"data:text/plain,a"`,
		"input_file with a PDF":    `"filename":"a","file_data":"data:application/pdf;base64,AA=="`,
		"input_file with file_id":  `"file_id":"file_1"`,
		"input_audio":              `"input_audio":{"data":"AA==","format":"wav"}`,

		"function":  `"name":"g","parameters":{}`,
		"custom":    `"name":"g"`,
		"namespace": `"name":"n","tools":[{"type":"function","name":"g","parameters":{}}]`,
	},
}
