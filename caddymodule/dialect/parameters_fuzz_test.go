package dialect

import (
	"bytes"
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/postern-dev/postern/caddymodule/compat"
)

// FuzzParameters compares the merged body with maps that are merged.
func FuzzParameters(f *testing.F) {
	for _, s := range [][4]string{
		{
			`{"a":1,"b":{"c":[],"d":null},"max_tokens":5}`, `{"a":null,"b":{"c":2,"D":{}}}`, `{"low":{"b":{"e":{}}}}`,
			`{"b":{"d":{}}}`,
		},
		{
			`{"a":{"a":{}}}`, `{"a":{"a":{"a":1}},"reasoning_effort":"low"}`, `{"low":{"a":{"a":{"b":1}}}}`,
			`{"a":{"a":{"a":2}}}`,
		},
		{`{"reasoning_effort":"x"}`, `{ "reasoning_effort" : "low" }`, `{"low":{"y":1}}`, ``},
		{``, `{"reasoning_effort":"low","x":1}`, `{"low":"z"}`, `{"n_predict":7}`},
		{``, ` { "x" : 1 , "reasoning_effort" : "low" } `, `{"low":{}}`, `{"x":{}}`},
		{`{"a":{}}`, `{"\u0061":{},"":0,"max_tokens":null}`, ``, `{"a":{},"":1}`},
	} {
		f.Add([]byte(s[0]), []byte(s[1]), []byte(s[2]), []byte(s[3]))
	}
	f.Fuzz(func(t *testing.T, defaults, client, efforts, force []byte) {
		var o compat.Options
		for name, value := range map[string][]byte{"defaults": defaults, "efforts": efforts, "force": force} {
			isOdd := bytes.ContainsFunc(value, folds) || bytes.Count(value, []byte("{")) > maxMerged
			if isOdd || len(value) > 0 && o.SetJSON(name, value) != nil {
				return
			}
		}
		var members map[string]any
		if json.Unmarshal(client, &members) != nil || members == nil || strictJSON(client) != nil {
			return
		}
		const gateway = `"model":"public","messages":[],"stream":true`
		first, last := gateway, gateway
		if len(members) > 0 {
			first, last = gateway+",", ","+gateway
		}
		start, end := bytes.IndexByte(client, '{')+1, bytes.LastIndexByte(client, '}')
		for _, body := range [][]byte{
			slices.Concat(client[:start], []byte(first), client[start:]),
			slices.Concat(client[:end], []byte(last), client[end:]),
		} {
			got, ok := merged(t, o, body)
			if !ok {
				return
			}
			if want := withoutLimits(mergedByMaps(t, o, body)); !reflect.DeepEqual(got, want) {
				t.Fatalf("%s\n got %v\nwant %v", body, got, want)
			}
			again, ok := merged(t, compat.Options{Force: o.Force}, []byte(encoded(t, got)))
			if !ok || !reflect.DeepEqual(got, again) {
				t.Fatalf("forced again: %v\nwant %v", again, got)
			}
		}
	})
}

// folds reports whether a name with this rune may equal another one under case folding.
func folds(r rune) bool { return 'A' <= r && r <= 'Z' || r >= utf8.RuneSelf || r == '\\' }

// merged is the body for a model server, without the options and limits that the gateway sets. It returns false
// for a fault of the client, such as a name in another case.
func merged(t *testing.T, o compat.Options, body []byte) (map[string]any, bool) {
	t.Helper()
	call, fault := Decode(chatOp, body, envWithOptions(o))
	if fault != nil {
		return nil, false
	}
	got := withoutLimits(upstreamObject(t, call.Body("public")))
	if options, ok := got["stream_options"].(map[string]any); !ok || options["include_usage"] != true {
		t.Fatalf("stream_options of %v", got)
	}
	delete(got, "stream_options")
	return got, true
}

// withoutLimits removes the limits of an answer, which TestLimitParameters is about.
func withoutLimits(body map[string]any) map[string]any {
	for _, name := range fieldNames[fieldMaxTokens:] {
		delete(body, name)
	}
	return body
}

// mergedByMaps is what a body becomes, by the documented precedence.
func mergedByMaps(t *testing.T, o compat.Options, client []byte) map[string]any {
	t.Helper()
	object := func(text []byte) (m map[string]any) {
		if err := json.Unmarshal(text, &m); err != nil {
			t.Skip(err) // a number that is out of range
		}
		return m
	}
	option := func(o compat.Object) map[string]any { return object([]byte(cmp.Or(o, "{}"))) }
	body, over := object(client), map[string]any{}
	effort, _ := body[reasoningEffort].(string)
	switch value := option(o.Efforts)[effort].(type) {
	case string:
		over[reasoningEffort] = value
	case map[string]any:
		over[reasoningEffort] = nil
		overlay(over, value)
	}
	overlay(over, option(o.Force))
	fill(body, option(o.Defaults))
	overlay(body, over)
	delete(body, "stream_options")
	return body
}

// fill adds what an object lacks.
func fill(object, defaults map[string]any) {
	for name, value := range defaults {
		inner, ok := value.(map[string]any)
		old, isObject := object[name].(map[string]any)
		switch {
		case object[name] == nil:
			object[name] = clone(value)
		case ok && isObject:
			fill(old, inner)
		}
	}
}

// overlay replaces what an object has.
func overlay(object, over map[string]any) {
	for name, value := range over {
		inner, ok := value.(map[string]any)
		old, isObject := object[name].(map[string]any)
		if ok && isObject {
			overlay(old, inner)
		} else {
			object[name] = clone(value)
		}
	}
}

// clone copies the maps of a value.
func clone(value any) any {
	object, ok := value.(map[string]any)
	if !ok {
		return value
	}
	copied := make(map[string]any, len(object))
	for name, value := range object {
		copied[name] = clone(value)
	}
	return copied
}
