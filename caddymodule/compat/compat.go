// Package compat holds the switches of a deployment: workarounds for a model
// server that deviates from most. They are kept with the deployment, set by management, and acted on by the dialects; this package
// knows their names and values, and nothing of what they do.
package compat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Options are the switches of a deployment. The zero value has all defaults:
// a switch that is at its default is false or "", so that options can be
// compared, and unset ones take no place in a record.
type Options struct {
	// The model server takes reasoning_effort: thinking and effort of a messages
	// request are sent as that. Default: false.
	Reasoning bool `json:"reasoning,omitempty"`

	// What becomes of system messages behind the first turn: InlineKeep leaves
	// them where they are. Default: they are folded into the turn before.
	InlineSystem string `json:"inline_system,omitempty"`

	// The model server takes files, such as PDF documents, as parts of content.
	// Default: false.
	FileParts bool `json:"file_parts,omitempty"`

	// The model server leaves thinking in the text, between <think> and
	// </think>. Default: false.
	ThinkTags bool `json:"think_tags,omitempty"`

	// How responses carry reasoning: ReasoningContent as its text. Default: as
	// its summary.
	ReasoningAs string `json:"reasoning_as,omitempty"`

	// Whether tool calls in chat streams are renumbered: RepairOn or RepairOff.
	// Default: if the model server is recognized to need it.
	RepairToolIndex string `json:"repair_tool_index,omitempty"`

	// Which URLs of images, audio, video and files a request may have the model
	// server fetch: RemoteHTTPS those of public hosts over HTTPS, RemoteAllow
	// all. Default: none, only data: URLs pass.
	RemoteMedia string `json:"remote_media,omitempty"`

	// Requests may name further models in models, fallbacks, route and
	// draft_model. Default: false, they are refused.
	ExtraModels bool `json:"extra_models,omitempty"`

	// What becomes of role developer in chat requests: DeveloperKeep leaves it.
	// Default: it is sent as system.
	DeveloperRole string `json:"developer_role,omitempty"`
}

// The values that are no defaults.
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
	Help   string   // for people: what the values that are no default do

	flag func(*Options) *bool // of a switch whose values are "false" and "true"
	text func(*Options) *string
}

// all is every switch.
var all = [...]Option{
	{
		Name: "reasoning", Values: flags, Title: "Reasoning effort",
		Help: "true: messages requests send their thinking and effort on as reasoning_effort",
		flag: func(o *Options) *bool { return &o.Reasoning },
	},
	{
		Name: "inline_system", Values: []string{"fold", InlineKeep}, Title: "System messages in between",
		Help: "keep: system messages stay between the turns; fold: they join the turn before",
		text: func(o *Options) *string { return &o.InlineSystem },
	},
	{
		Name: "file_parts", Values: flags, Title: "Files",
		Help: "true: the model server reads files such as PDF documents; false: they are refused",
		flag: func(o *Options) *bool { return &o.FileParts },
	},
	{
		Name: "think_tags", Values: flags, Title: "Think tags",
		Help: "true: <think>…</think> at the beginning of an answer is sent as reasoning",
		flag: func(o *Options) *bool { return &o.ThinkTags },
	},
	{
		Name: "reasoning_as", Values: []string{"summary", ReasoningContent}, Title: "Reasoning in responses",
		Help: "content: responses carry reasoning as reasoning_text, not as a summary",
		text: func(o *Options) *string { return &o.ReasoningAs },
	},
	{
		Name: "repair_tool_index", Values: []string{"auto", RepairOn, RepairOff}, Title: "Numbers of tool calls",
		Help: "on: calls in chat streams are renumbered, as Ollama numbers all 0; auto: only Ollama's",
		text: func(o *Options) *string { return &o.RepairToolIndex },
	},
	{
		Name: "remote_media", Values: []string{"deny", RemoteHTTPS, RemoteAllow}, Title: "Media from elsewhere",
		Help: "https: the model server may fetch images and other media from https:// URLs of public hosts; allow: from any URL",
		text: func(o *Options) *string { return &o.RemoteMedia },
	},
	{
		Name: "extra_models", Values: flags, Title: "Further models",
		Help: "true: requests may name other models of the server in models, fallbacks, route and draft_model",
		flag: func(o *Options) *bool { return &o.ExtraModels },
	},
	{
		Name: "developer_role", Values: []string{"system", DeveloperKeep}, Title: "Role developer",
		Help: "keep: chat requests keep the role developer; system: it is sent as system, which more models know",
		text: func(o *Options) *string { return &o.DeveloperRole },
	},
}

// flags are the values of a switch that is a bool.
var flags = []string{"false", "true"}

// All returns every switch, in the order in which to show them.
func All() []Option { return slices.Clone(all[:]) }

// IsFlag reports whether the switch is a bool, in JSON too.
func (s Option) IsFlag() bool { return s.flag != nil }

// Of is the value that the options have for this switch.
func (s Option) Of(o Options) string {
	switch {
	case s.flag != nil && *s.flag(&o):
		return s.Values[1]
	case s.text != nil && *s.text(&o) != "":
		return *s.text(&o)
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
	if s.flag != nil {
		*s.flag(o) = value == s.Values[1]
		return nil
	}
	if value == s.Values[0] {
		value = ""
	}
	*s.text(o) = value
	return nil
}

// SetJSON sets the switch of this name to a JSON value: true or false, or a
// string.
func (o *Options) SetJSON(name string, value any) error {
	s, err := find(name)
	if err != nil {
		return err
	}
	switch value := value.(type) {
	case bool:
		if s.IsFlag() {
			*s.flag(o) = value
			return nil
		}
	case string:
		if !s.IsFlag() && value != "" {
			return o.Set(name, value)
		}
	}
	return s.wrong()
}

// wrong returns an error with the valid values.
func (s Option) wrong() error {
	last := len(s.Values) - 1
	return fmt.Errorf("option %q must be %s or %s", s.Name, strings.Join(s.Values[:last], ", "), s.Values[last])
}

// errWriting is why options cannot be read that are not written as they
// should be.
var errWriting = errors.New("an option is written NAME=VALUE")

// Parse sets options that are written NAME=VALUE.
func (o *Options) Parse(assignment string) error {
	name, value, ok := strings.Cut(assignment, "=")
	if !ok || value == "" {
		return fmt.Errorf("option %.80q: %w; the options are %s", assignment, errWriting, strings.Join(Names(), ", "))
	}
	return o.Set(name, value)
}

// Check reports unknown values, and values not in the form that Set gives them.
func (o Options) Check() error {
	for _, s := range all {
		if s.text == nil || *s.text(&o) == "" {
			continue
		}
		if !slices.Contains(s.Values[1:], *s.text(&o)) {
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
