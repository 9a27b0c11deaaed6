package dialect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/compat"
)

// These are the places of a request that may have an address, with the names of their fields.
var mediaPlaces = []struct {
	op          Operation
	body, param string
}{
	{
		chatOp, `{"model":"public","messages":[{"role":"user","content":"x"},{"role":"user","content":[{"type":"text",` +
			`"text":"x"},{"type":"image_url","image_url":{"detail":"low","url":ADDRESS}}]}]}`,
		"messages[1].content[1].image_url.url",
	},
	{
		chatOp, `{"model":"public","messages":[{"role":"user","content":[{"image_url":ADDRESS}]}]}`,
		"messages[0].content[0].image_url",
	},
	{chatOp, `{"messages":[{"role":"user","content":[{"type":"audio_url","audio_url":{"url":ADDRESS}}]}],` +
		`"model":"public"}`, "messages[0].content[0].audio_url.url"},
	{chatOp, `{"model":"public","messages":[{"role":"tool","content":[{"type":"video_url",` +
		`"video_url":{"url":ADDRESS}}]}]}`, "messages[0].content[0].video_url.url"},
	{chatOp, `{"model":"public","messages":[{"role":"user","content":[{"type":"input_audio",` +
		`"input_audio":{"data":ADDRESS,"format":"wav"}}]}]}`, "messages[0].content[0].input_audio.data"},
	{
		chatOp, `{"model":"public","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":ADDRESS}}]}]}`,
		"messages[0].content[0].file.file_id",
	},
	{
		chatOp, `{"model":"public","messages":[{"role":"user","content":[{"type":"file","file":{"file_data":ADDRESS}}]}]}`,
		"messages[0].content[0].file.file_data",
	},
	{
		chatOp, `{"model":"public","messages":[{"role":"user","content":[{"type":"image","image":ADDRESS}]}]}`,
		"messages[0].content[0].image",
	},
	{
		chatOp, `{"model":"public","messages":[{"role":"user","content":[{"type":"video","video":["data:,x",ADDRESS]}]}]}`,
		"messages[0].content[0].video[1]",
	},
	{chatOp, `{"model":"public","messages":[{"role":"user","content":[{"type":"image","source":{"type":"url",` +
		`"url":ADDRESS}}]}]}`, "messages[0].content[0].source.url"},
	{
		chatOp, `{"model":"public","messages":[{"role":"user","Content":[{"Image_URL":{"U\u0072L":ADDRESS}}]}]}`,
		"messages[0].Content[0].Image_URL.UrL",
	},
	{
		chatOp, `{"model":"public","messages":[{"content":[{"\u0069mage_url":ADDRESS}]}]}`,
		"messages[0].content[0].image_url",
	},
	{chatOp, `{"model":"public","messages":[{"content":{"image_url":ADDRESS}}]}`, "messages[0].content.image_url"},
	{
		chatOp, `{"model":"public","messages":[{"content":[{"type":"media","media":ADDRESS}]}]}`,
		"messages[0].content[0].media",
	},
	{
		chatOp, `{"model":"public","messages":[{"content":[{"document_url":{"url":ADDRESS}}]}]}`,
		"messages[0].content[0].document_url.url",
	},
	{chatOp, `{"model":"public","messages":[{"content":[{"PDF_url":ADDRESS}]}]}`, "messages[0].content[0].PDF_url"},
	{chatOp, `{"model":"public","messages":[{"content":[{"image_pil":ADDRESS}]}]}`, "messages[0].content[0].image_pil"},
	{chatOp, `{"model":"public","messages":[{"content":[{"video_path":ADDRESS}]}]}`, "messages[0].content[0].video_path"},
	{
		chatOp, `{"model":"public","messages":[{"content":[{"image_embeds":{"image_embeds":ADDRESS}}]}]}`,
		"messages[0].content[0].image_embeds.image_embeds",
	},
	{
		chatOp, `{"model":"public","messages":[{"content":[{"image_embeds":{"image_grid_thw":ADDRESS}}]}]}`,
		"messages[0].content[0].image_embeds.image_grid_thw",
	},
	{
		chatOp, `{"model":"public","messages":[{"content":[{"Image_embeds":[{"x":ADDRESS}]}]}]}`,
		"messages[0].content[0].Image_embeds[0].x",
	},
	{
		chatOp, `{"model":"public","messages":[{"content":[{"audio_embeds":ADDRESS}]}]}`,
		"messages[0].content[0].audio_embeds",
	},
	{
		chatOp, `{"model":"public","messages":[{"content":[{"video_embeds":[ADDRESS]}]}]}`,
		"messages[0].content[0].video_embeds[0]",
	},
	{chatOp, `{"model":"public","messages":[{"content":[{"type":"tool_result",` +
		`"content":[{"image_url":{"url":ADDRESS}}]}]}]}`, "messages[0].content[0].content[0].image_url.url"},
	{
		chatOp, `{"model":"public","messages":[{"content":{"content":{"source":{"url":ADDRESS}}}}]}`,
		"messages[0].content.content.source.url",
	},
	{chatOp, `{"model":"public","messages":[],"messages":[{"content":[{"image_url":{"url":"data:,x"},` +
		`"image_url":ADDRESS}]}]}`, "messages[0].content[0].image_url"},
	{
		chatOp, `{"model":"public","messages":[],"Messages":[{"content":[{"image_url":ADDRESS}]}]}`,
		"Messages[0].content[0].image_url",
	},
	{Operation{Kind: Embeddings, Dialect: Chat}, `{"model":"public","input":[{"image":ADDRESS}]}`, "input[0].image"},
	{
		Operation{Kind: Embeddings, Dialect: Chat},
		`{"model":"public","input":{"content":[{"image_url":ADDRESS}]}}`,
		"input.content[0].image_url",
	},
	{
		Operation{Kind: Embeddings, Dialect: Chat},
		`{"model":"public","input":"x","messages":[{"content":[{"image_url":ADDRESS}]}]}`,
		"messages[0].content[0].image_url",
	},
	{messagesOp, `{"model":"public","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image",` +
		`"source":{"type":"url","url":ADDRESS}}]}]}`, "messages.0.content.0.source.url"},
	{
		messagesOp, `{"model":"public","max_tokens":9,"messages":[{"role":"user","content":[{"type":"tool_result",` +
			`"tool_use_id":"a","content":[{"type":"image","source":{"type":"url","url":ADDRESS}}]}]}]}`,
		"messages.0.content.0.content.0.source.url",
	},
	{
		responsesOp, `{"model":"public","input":[{"role":"user","content":[{"type":"input_image","image_url":ADDRESS}]}]}`,
		"input[0].content[0].image_url",
	},
	{responsesOp, `{"model":"public","input":[{"role":"user","content":[{"type":"input_image",` +
		`"image_url":{"url":ADDRESS}}]}]}`, "input[0].content[0].image_url"},
	{responsesOp, `{"model":"public","input":[{"type":"function_call_output","call_id":"a",` +
		`"output":[{"type":"input_image","image_url":ADDRESS}]}]}`, "input[0].output[0].image_url"},
	{responsesOp, `{"model":"public","input":[{"role":"user","content":[{"type":"input_audio",` +
		`"input_audio":{"url":ADDRESS}}]}]}`, "input[0].content[0].input_audio.url"},
}

// mediaAddresses are addresses, and whether a model server fetches them.
var mediaAddresses = map[string]bool{
	`"data:image/png;base64,iVBORw0KGgo="`: false, `"DATA:,x"`: false, `"d\u0061ta:,x"`: false,
	`"https://example.com/a.png"`: true, `"http:\/\/example.com\/a.png"`: true, `"HTTP://169.254.169.254/latest"`: true,
	`"file:///etc/passwd"`: true, `"/etc/hosts.png"`: true, `"//example.com/a.png"`: true, `" data:,/a.png"`: true,
	`"https://127.1/a"`: true, `"dat:."`: true,
}

// A model server fetches addresses only with remote_media, in each dialect and at each place. The error names the
// field.
func TestRemoteMedia(t *testing.T) {
	for _, place := range mediaPlaces {
		for address, remote := range mediaAddresses {
			for _, policy := range []string{"", compat.RemoteAllow} {
				body := strings.Replace(place.body, "ADDRESS", address, 1)
				_, fault := Decode(place.op, []byte(body), envWithOptions(compat.Options{RemoteMedia: policy}))
				if pass := !remote || policy != ""; pass != (fault == nil) {
					t.Errorf("remote_media %q: %v\n%s", policy, fault, body)
				} else if !pass && (fault.HTTPStatus(place.op.Dialect) != 400 || fault.Param != place.param ||
					!strings.Contains(fault.Message, place.param)) {
					t.Errorf("remote_media %q: %+v, want %s to be named\n%s", policy, fault, place.param, body)
				}
			}
		}
	}
}

// Other texts with the form of an address are allowed.
func TestNoRemoteMedia(t *testing.T) {
	for _, body := range []string{
		`{"model":"public","messages":[{"role":"user","content":"see https://example.com/a.png and file:///x"}]}`,
		`{"model":"public","messages":[{"role":"user","content":[{"type":"text","text":"http://10.0.0.1/a.png"}]}]}`,
		`{"model":"public","messages":[{"role":"assistant","tool_calls":[{"id":"a","type":"function",` +
			`"function":{"name":"fetch","arguments":{"url":"http://10.0.0.1/"}}}]}]}`,
		`{"model":"public","messages":[{"role":"assistant","audio":{"id":"audio_abc"}}]}`,
		`{"model":"public","messages":[{"role":"user","content":[{"type":"input_audio",` +
			`"input_audio":{"data":"UklGRv\/+/9==","format":"wav"}}]}]}`,
		`{"model":"public","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"file-abc123",` +
			`"filename":"a.pdf"}}]}]}`,
		`{"model":"public","messages":[{"role":"user","content":[{"type":"image_url","image_url":null},` +
			`{"type":"image_url","image_url":{"url":""}},7,"x",[]]},7,[]]}`,
		`{"model":"public","messages":[{"role":"user","content":[{"type":"hologram","hologram":"http://10.0.0.1/"},` +
			`{"type":"text","text":"x","media_type":"image/png"}]}]}`,
		`{"model":"public","messages":[],"tools":[{"type":"function","function":{"name":"f",` +
			`"parameters":{"properties":{"url":{"default":"http://10.0.0.1"}}}}}],"response_format":{"url":"http://10.0.0.1"}}`,
	} {
		if _, fault := Decode(chatOp, []byte(body), testEnv()); fault != nil {
			t.Errorf("%s\n%s", fault.Message, body)
		}
	}
}

// Fields that choose other models, servers or credentials are refused in the chat dialect, and dropped
// in the others.
func TestRoutingNames(t *testing.T) {
	t.Parallel()
	given := func(name string) string { return strings.Replace(name, "*", "region_name", 1) }
	for _, kind := range []OperationKind{ChatCompletions, Completions, Embeddings} {
		op := Operation{Kind: kind, Dialect: Chat}
		for _, name := range routingNames {
			key := given(name)
			keys := []string{key, strings.ToUpper(key), fmt.Sprintf(`\u%04x%s`, key[0], key[1:])}
			if key == name {
				keys = append(keys, strings.Replace(key, "s", "ſ", 1))
			}
			for _, key := range keys {
				body := `{"messages":[],"input":"x","` + key + `":["a"],"prompt":"x","model":"public"}`
				_, fault := Decode(op, []byte(body), testEnv())
				if fault == nil || fault.Param != name || fault.HTTPStatus(Chat) != 400 || !strings.Contains(fault.Message, name) {
					t.Errorf("%v, %s", fault, body)
				}
			}
		}
		body := `{"messages":[{"models":1,"api_base":2}],"input":"x","prompt":"x","models":null,"fallbacks":null,` +
			`"model":"public","":1,"route_x":1,"aws":1,` +
			`"my_api_key":1,"provider":{},"metadata":{},"max_tokens":1,"chat_template_kwargs":{},"guided_json":{},` +
			`"keep_alive":1,"lora":[],"litellm_session_id":"a"}`
		if _, fault := Decode(op, []byte(body), testEnv()); fault != nil {
			t.Errorf("%s, %s", fault.Message, body)
		}
	}
	for op, body := range map[Operation]string{
		messagesOp:  `{"model":"public","max_tokens":9,"messages":[{"role":"user","content":"x"}]`,
		responsesOp: `{"model":"public","input":"x"`,
	} {
		for _, name := range routingNames {
			if up := upstreamFields(t, op, body+`,"`+given(name)+`":"a"}`); up[given(name)] != nil {
				t.Errorf("%s: %s goes up", op.Dialect, given(name))
			}
		}
	}
}
