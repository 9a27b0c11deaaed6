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

// Options can be set back to their defaults, also by "".
func TestDefaultsAgain(t *testing.T) {
	o := Options{
		Reasoning: true, InlineSystem: InlineKeep, FileParts: true, ThinkTags: true,
		ReasoningAs: ReasoningContent, RepairToolIndex: RepairOff, RemoteMedia: RemoteHTTPS, ExtraModels: true,
		DeveloperRole: DeveloperKeep,
	}
	if got := o.String(); got != "reasoning=true inline_system=keep file_parts=true think_tags=true "+
		"reasoning_as=content repair_tool_index=off remote_media=https extra_models=true developer_role=keep" {
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
			`unknown option "thinktags"; the options are reasoning, inline_system, file_parts, think_tags, reasoning_as, ` +
				`repair_tool_index, remote_media, extra_models, developer_role`,
		},
		{func(o *Options) error { return o.Set("think_tags", "yes") }, `option "think_tags" must be false or true`},
		{
			func(o *Options) error { return o.Set("repair_tool_index", "true") },
			`option "repair_tool_index" must be auto, on or off`,
		},
		{func(o *Options) error { return o.Parse("think_tags") }, "NAME=VALUE"},
		{func(o *Options) error { return o.Parse("think_tags=") }, "NAME=VALUE"},
		{func(o *Options) error { return o.SetJSON("think_tags", "true") }, "must be false or true"},
		{func(o *Options) error { return o.SetJSON("think_tags", nil) }, "must be false or true"},
		{func(o *Options) error { return o.SetJSON("inline_system", true) }, "must be fold or keep"},
		{func(o *Options) error { return o.SetJSON("inline_system", "") }, "must be fold or keep"},
		{func(o *Options) error { return o.SetJSON("inline_system", 1.0) }, "must be fold or keep"},
		{func(o *Options) error { return o.SetJSON("x", true) }, `unknown option "x"`},
		// not in the form of Set
		{func(*Options) error { return Options{InlineSystem: "fold"}.Check() }, "must be fold or keep"},
		{func(*Options) error { return Options{RepairToolIndex: "maybe"}.Check() }, "must be auto, on or off"},
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
