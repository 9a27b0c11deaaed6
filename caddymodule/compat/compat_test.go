package compat

import (
	"encoding/json"
	"strings"
	"testing"
)

// Every option can be set to each of its values, shows it, and survives JSON.
func TestValues(t *testing.T) {
	for _, s := range All() {
		for i, value := range s.Values {
			var o, back Options
			if err := o.Set(s.Name, value); err != nil {
				t.Fatal(err)
			}
			if s.Form != "" && len(s.Values) != 1 {
				t.Errorf("%s has a form and %d values", s.Name, len(s.Values))
			}
			if got := s.Value(o); got != value {
				t.Errorf("%s is %s, want %s", s.Name, got, value)
			}
			if err := o.Check(); err != nil {
				t.Errorf("%s=%s: %v", s.Name, value, err)
			}
			text, err := json.Marshal(o)
			if err != nil || json.Unmarshal(text, &back) != nil || back != o {
				t.Errorf("%s=%s is %s, and then %+v", s.Name, value, text, back)
			}
			want := ""
			if i > 0 {
				want = s.Name + "=" + value
			}
			if o.String() != want || (o == Options{}) != (i == 0) || (string(text) == "{}") != (i == 0) {
				t.Errorf("%s=%s is %+v, %s", s.Name, value, o, text)
			}
			var parsed Options
			if err := parsed.Parse(s.Name + "=" + value); err != nil || parsed != o {
				t.Errorf("parsed as %+v, %v", parsed, err)
			}
		}
		if s.Title == "" || s.Help == "" {
			t.Errorf("%s is not explained", s.Name)
		}
	}
}

// Options with a form take other values, and keep them in JSON.
func TestForms(t *testing.T) {
	for _, c := range []struct{ name, value, shown, json string }{
		{"context_window", "32768", "32768", "32768"},
		{"defaults", ` {"a": 1.50, "b": {"c": "x y"}} `, `{"a":1.50,"b":{"c":"x y"}}`, `{"a":1.50,"b":{"c":"x y"}}`},
		{"force", `{"temperature":0}`, `{"temperature":0}`, `{"temperature":0}`},
		{
			"efforts", `{"max":"xhigh","none":{"chat_template_kwargs":{"enable_thinking":false}}}`,
			`{"max":"xhigh","none":{"chat_template_kwargs":{"enable_thinking":false}}}`,
			`{"max":"xhigh","none":{"chat_template_kwargs":{"enable_thinking":false}}}`,
		},
		{"first_token_timeout", "120s", "120s", `"120s"`},
		{"safeguards", "qwen3:8b", "qwen3:8b", `"qwen3:8b"`},
		{"safeguards", SafeguardsSelf, "self", `"self"`},
	} {
		var o, parsed, again Options
		if err := o.Set(c.name, c.value); err != nil {
			t.Fatal(err)
		}
		s, err := Find(c.name)
		if err != nil || s.Value(o) != c.shown || string(s.JSON(s.Value(o))) != c.json {
			t.Errorf("%s is %s, %s, %v", c.name, s.Value(o), s.JSON(s.Value(o)), err)
		}
		if err := parsed.SetJSON(c.name, s.JSON(c.shown)); err != nil || parsed != o {
			t.Errorf("%s: %+v, %v", c.name, parsed, err)
		}
		text, err := json.Marshal(o)
		if err != nil || json.Unmarshal(text, &again) != nil || again != o || o.Check() != nil {
			t.Errorf("%s is %s, and then %+v, %v", c.name, text, again, o.Check())
		}
		if o.Set(c.name, "") != nil || o != (Options{}) {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

// Options can be set back to their defaults, also by "".
func TestDefaultsAgain(t *testing.T) {
	o := Options{
		Reasoning: true, FileParts: true, ThinkTags: true, RemoteMedia: RemoteAllow, Affinity: AffinityOff,
	}
	if got := o.String(); got != "reasoning=true file_parts=true think_tags=true remote_media=allow affinity=off" {
		t.Error(got)
	}
	for i, s := range All() {
		value := s.Values[0]
		if i%2 == 0 {
			value = ""
		}
		if err := o.Set(s.Name, value); err != nil {
			t.Fatal(err)
		}
	}
	if o != (Options{}) {
		t.Errorf("%+v", o)
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		set  func(*Options) error
		part string
	}{
		{
			func(o *Options) error { return o.Set("thinktags", "true") },
			`unknown option "thinktags"; the options are reasoning, file_parts, think_tags, remote_media, affinity, `,
		},
		{func(o *Options) error { return o.Set("think_tags", "yes") }, `option "think_tags" must be false or true`},
		{
			func(o *Options) error { return o.Set("affinity", "true") },
			`option "affinity" must be conversation, key or off`,
		},
		{func(o *Options) error { return o.Parse("think_tags") }, "NAME=VALUE"},
		{func(o *Options) error { return o.Parse("think_tags=") }, "NAME=VALUE"},
		{func(o *Options) error { return o.SetJSON("think_tags", []byte(`"true"`)) }, "must be false or true"},
		{func(o *Options) error { return o.SetJSON("think_tags", []byte("null")) }, "must be false or true"},
		{func(o *Options) error { return o.SetJSON("remote_media", []byte("true")) }, "must be deny or allow"},
		{func(o *Options) error { return o.SetJSON("remote_media", []byte(`""`)) }, "must be deny or allow"},
		{func(o *Options) error { return o.SetJSON("remote_media", []byte("1")) }, "must be deny or allow"},
		{func(o *Options) error { return o.SetJSON("context_window", []byte(`"1"`)) }, "must be a number of tokens"},
		{func(o *Options) error { return o.SetJSON("context_window", []byte("1.5")) }, "must be a number of tokens"},
		{func(o *Options) error { return o.Set("context_window", "-1") }, "must be a number of tokens"},
		{func(o *Options) error { return o.Set("first_token_timeout", "25h") }, "must be a duration"},
		{func(o *Options) error { return o.Set("first_token_timeout", "soon") }, "must be a duration"},
		{func(o *Options) error { return o.SetJSON("defaults", []byte(`"{}"`)) }, "must be a JSON object"},
		{func(o *Options) error { return o.Set("defaults", "[]") }, "must be a JSON object"},
		{func(o *Options) error { return o.Set("defaults", `{"a":1,"a":2}`) }, "must be a JSON object"},
		{func(o *Options) error { return o.Set("force", `{"a":"`+strings.Repeat("x", 9000)+`"}`) }, "8 KiB"},
		{
			func(o *Options) error {
				return o.Set("force", strings.Repeat(`{"a":`, 600)+"1"+strings.Repeat("}", 600))
			},
			"must be a JSON object",
		},
		{func(o *Options) error { return o.Set("force", `{"model":"x"}`) }, `must not have "model"`},
		{func(o *Options) error { return o.Set("defaults", `{"Top_K":1}`) }, `"Top_K" must be written in lower case`},
		{func(o *Options) error { return o.Set("force", `{"Model":"x"}`) }, `must not have "Model", which the gateway sets`},
		{func(o *Options) error { return o.Set("force", `{"n_cmpl":2}`) }, `must not have "n_cmpl"`},
		{func(o *Options) error { return o.Set("force", `{"max_tokens":-1}`) }, "must be a number from 1 to 100000000"},
		{func(o *Options) error { return o.Set("force", `{"Max_Tokens":1}`) }, `must not have "Max_Tokens"`},
		{func(o *Options) error { return o.Set("efforts", `{"low":{"max_tokens":1}}`) }, `must not have "max_tokens"`},
		{func(o *Options) error { return o.Set("efforts", `{"low":null}`) }, "must be a name or an object"},
		{func(o *Options) error { return o.Set("efforts", `{"much":"x"}`) }, `unknown effort "much"`},
		{func(o *Options) error { return o.Set("efforts", `{"low":1}`) }, "must be a name or an object"},
		{func(o *Options) error { return o.Set("efforts", `{"low":{"tools":[]}}`) }, `must not have "tools"`},
		{func(o *Options) error { return o.SetJSON("x", []byte("true")) }, `unknown option "x"`},
		// not in the form of Set
		{func(*Options) error { return Options{RemoteMedia: "deny"}.Check() }, "must be deny or allow"},
		{func(*Options) error { return Options{Affinity: "maybe"}.Check() }, "must be conversation, key or off"},
	} {
		var o Options
		if err := c.set(&o); err == nil || !strings.Contains(err.Error(), c.part) {
			t.Errorf("error = %v, want one with %q", err, c.part)
		}
		if o != (Options{}) {
			t.Errorf("%+v after an error", o)
		}
	}
}
