// Package compat holds the switches of a deployment: workarounds for a model
// server that deviates from most. They are kept with the deployment, set by
// management, and acted on by the dialects; this package knows their names and
// values only.
package compat

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Options are the switches of a deployment, at their defaults in the zero value.
// A switch at its default is false or "", so that options can be compared, and
// unset ones take no place in a record. all describes them.
type Options struct {
	Reasoning       bool   `json:"reasoning,omitempty"`
	InlineSystem    string `json:"inline_system,omitempty"`
	FileParts       bool   `json:"file_parts,omitempty"`
	ThinkTags       bool   `json:"think_tags,omitempty"`
	ReasoningAs     string `json:"reasoning_as,omitempty"`
	RepairToolIndex string `json:"repair_tool_index,omitempty"`
	RemoteMedia     string `json:"remote_media,omitempty"`
	ExtraModels     bool   `json:"extra_models,omitempty"`
	DeveloperRole   string `json:"developer_role,omitempty"`
}

// The values that are not defaults.
const (
	RemoteHTTPS      = "https"
	RemoteAllow      = "allow"
	DeveloperKeep    = "keep"
	InlineKeep       = "keep"
	ReasoningContent = "content"
	RepairOn         = "on"
	RepairOff        = "off"
)

// Option is one switch, for those that show or set options by name.
type Option struct {
	Name   string
	Values []string // the first is the default
	Title  string   // for people, as a heading
	Help   string   // for people: what the other values do

	field func(*Options) any // a *bool if the values are flags, else a *string
}

// all is every switch.
var all = [...]Option{
	{
		Name: "reasoning", Values: flags, Title: "Reasoning effort",
		Help:  "true: messages requests send their thinking and effort on as reasoning_effort",
		field: func(o *Options) any { return &o.Reasoning },
	},
	{
		Name: "inline_system", Values: []string{"fold", InlineKeep}, Title: "System messages in between",
		Help:  "keep: system messages stay between the turns; fold: they join the turn before",
		field: func(o *Options) any { return &o.InlineSystem },
	},
	{
		Name: "file_parts", Values: flags, Title: "Files",
		Help:  "true: the model server reads files such as PDF documents; false: they are refused",
		field: func(o *Options) any { return &o.FileParts },
	},
	{
		Name: "think_tags", Values: flags, Title: "Think tags",
		Help:  "true: <think>…</think> at the beginning of an answer is sent as reasoning",
		field: func(o *Options) any { return &o.ThinkTags },
	},
	{
		Name: "reasoning_as", Values: []string{"summary", ReasoningContent}, Title: "Reasoning in responses",
		Help:  "content: responses carry reasoning as reasoning_text, not as a summary",
		field: func(o *Options) any { return &o.ReasoningAs },
	},
	{
		Name: "repair_tool_index", Values: []string{"auto", RepairOn, RepairOff}, Title: "Numbers of tool calls",
		Help:  "on: calls in chat streams are renumbered, as Ollama numbers all 0; auto: only Ollama's",
		field: func(o *Options) any { return &o.RepairToolIndex },
	},
	{
		Name: "remote_media", Values: []string{"deny", RemoteHTTPS, RemoteAllow}, Title: "Media from elsewhere",
		Help:  "https: the model server may fetch images and other media from https:// URLs of public hosts; allow: from any URL",
		field: func(o *Options) any { return &o.RemoteMedia },
	},
	{
		Name: "extra_models", Values: flags, Title: "Further models",
		Help:  "true: requests may name other models of the server in models, fallbacks, route and draft_model",
		field: func(o *Options) any { return &o.ExtraModels },
	},
	{
		Name: "developer_role", Values: []string{"system", DeveloperKeep}, Title: "Role developer",
		Help:  "keep: chat requests keep the role developer; system: it is sent as system, which more models know",
		field: func(o *Options) any { return &o.DeveloperRole },
	},
}

// flags are the values of a switch that is a bool.
var flags = []string{"false", "true"}

// All returns every switch, in the order in which to show them.
func All() []Option { return slices.Clone(all[:]) }

// IsFlag reports whether the switch is a bool, in JSON too.
func (s Option) IsFlag() bool { return s.Values[1] == flags[1] }

// Of is the value that the options have for this switch.
func (s Option) Of(o Options) string {
	switch field := s.field(&o).(type) {
	case *bool:
		return strconv.FormatBool(*field)
	case *string:
		if *field != "" {
			return *field
		}
	}
	return s.Values[0]
}

// find returns the switch of a name.
func find(name string) (Option, error) {
	for _, s := range all {
		if s.Name == name {
			return s, nil
		}
	}
	return Option{}, fmt.Errorf("unknown option %.80q; the options are %s", name, strings.Join(Names(), ", "))
}

// Names are the names of all switches.
func Names() []string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	return names
}

// Set sets the switch of this name; "" is its default, as is the name of that.
func (o *Options) Set(name, value string) error {
	s, err := find(name)
	if err != nil {
		return err
	}
	if value == "" {
		value = s.Values[0]
	}
	if !slices.Contains(s.Values, value) {
		return s.wrong()
	}
	switch field := s.field(o).(type) {
	case *bool:
		*field = value == s.Values[1]
	case *string:
		if *field = value; value == s.Values[0] {
			*field = ""
		}
	}
	return nil
}

// SetJSON sets the switch of this name to a JSON value: true or false, or a
// string.
func (o *Options) SetJSON(name string, value any) error {
	s, err := find(name)
	if err != nil {
		return err
	}
	text, ok := value.(string)
	if flag, isFlag := value.(bool); isFlag {
		text = strconv.FormatBool(flag)
	} else if !ok || text == "" || s.IsFlag() {
		return s.wrong()
	}
	return o.Set(name, text)
}

// wrong returns an error with the valid values.
func (s Option) wrong() error {
	last := len(s.Values) - 1
	return fmt.Errorf("option %q must be %s or %s", s.Name, strings.Join(s.Values[:last], ", "), s.Values[last])
}

// Parse sets options that are written NAME=VALUE.
func (o *Options) Parse(assignment string) error {
	name, value, ok := strings.Cut(assignment, "=")
	if !ok || value == "" {
		return fmt.Errorf("option %.80q: an option is written NAME=VALUE; the options are %s", assignment, strings.Join(Names(), ", "))
	}
	return o.Set(name, value)
}

// Check reports unknown values, and values not in the form that Set gives them.
func (o Options) Check() error {
	for _, s := range all {
		if text, ok := s.field(&o).(*string); ok && *text != "" && !slices.Contains(s.Values[1:], *text) {
			return s.wrong()
		}
	}
	return nil
}

// String writes the options that are not at their defaults, NAME=VALUE with
// spaces between them; "" if all are.
func (o Options) String() string {
	var list []string
	for _, s := range all {
		if value := s.Of(o); value != s.Values[0] {
			list = append(list, s.Name+"="+value)
		}
	}
	return strings.Join(list, " ")
}
