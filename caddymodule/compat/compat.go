// Package compat defines the options of a deployment: adjustments for its model
// servers. Management sets them, the store keeps them, and the dialects
// implement them. This package defines their names and values only.
package compat

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options are the options of a deployment. The zero value contains the defaults. An
// option at its default is false or "". Therefore, Options can be compared, and records
// omit defaults. all describes the options.
type Options struct {
	Reasoning   bool   `json:"reasoning,omitempty"`
	FileParts   bool   `json:"file_parts,omitempty"`
	ThinkTags   bool   `json:"think_tags,omitempty"`
	RemoteMedia string `json:"remote_media,omitempty"`
	Affinity    string `json:"affinity,omitempty"`
	Order       string `json:"order,omitempty"`

	ContextWindow     int    `json:"context_window,omitzero"` // tokens; 0: not known
	Overflow          string `json:"overflow,omitempty"`
	Defaults          Object `json:"defaults,omitzero"`
	Force             Object `json:"force,omitzero"`
	Efforts           Object `json:"efforts,omitzero"`
	Safeguards        string `json:"safeguards,omitempty"`          // a deployment, or SafeguardsSelf
	FirstTokenTimeout string `json:"first_token_timeout,omitempty"` // for time.ParseDuration; "": none
}

// The values that are not defaults.
const (
	RemoteAllow    = "allow"
	AffinityKey    = "key"
	AffinityOff    = "off"
	OrderFirst     = "first"
	OverflowPass   = "pass"
	SafeguardsSelf = "self"
)

// Option describes one option, to show or set it by name.
type Option struct {
	Name   string
	Values []string // the first is the default; of an option with Form, the only one
	Form   string   // what other values are, "" for an option with Values alone
	Title  string   // heading in the console
	Help   string   // describes the other values

	field func(*Options) any // a *bool if the values are flags, else a *string, *int or *Object
}

// all lists the options.
var all = [...]Option{
	{
		Name: "reasoning", Values: flags, Title: "Reasoning effort",
		Help:  "true: the thinking and effort of messages requests are sent as reasoning_effort",
		field: func(o *Options) any { return &o.Reasoning },
	},
	{
		Name: "file_parts", Values: flags, Title: "Files",
		Help:  "true: the model server reads files such as PDF documents; false: files are rejected",
		field: func(o *Options) any { return &o.FileParts },
	},
	{
		Name: "think_tags", Values: flags, Title: "Think tags",
		Help:  "true: <think>…</think> at the beginning of an answer is sent as reasoning",
		field: func(o *Options) any { return &o.ThinkTags },
	},
	{
		Name: "remote_media", Values: []string{"deny", RemoteAllow}, Title: "Remote media",
		Help:  "allow: the model server may fetch images and other media from any URL",
		field: func(o *Options) any { return &o.RemoteMedia },
	},
	{
		Name: "affinity", Values: []string{"conversation", AffinityKey, AffinityOff}, Title: "Affinity to a connector",
		Help: "conversation: the turns of a conversation stay with one connector, whose model server has them cached; " +
			"key: all requests of a key do; off: each goes to the least busy",
		field: func(o *Options) any { return &o.Affinity },
	},
	{
		Name: "order", Values: []string{"spread", OrderFirst}, Title: "Order of connectors",
		Help: "first: connectors are tried in their order; the next one serves only while those before it are " +
			"offline, down or full",
		field: func(o *Options) any { return &o.Order },
	},
	{
		Name: "context_window", Values: []string{"0"}, Form: formTokens, Title: "Context window",
		Help:  "the context window of the model in tokens, if its server does not tell it",
		field: func(o *Options) any { return &o.ContextWindow },
	},
	{
		Name: "overflow", Values: []string{"refuse", OverflowPass}, Title: "Overlong prompts",
		Help:  "pass: prompts that are longer than the context window are sent to the model server, too",
		field: func(o *Options) any { return &o.Overflow },
	},
	{
		Name: "defaults", Values: []string{emptyObject}, Form: formObject, Title: "Default parameters",
		Help:  "parameters for chat, messages and responses requests that lack them",
		field: func(o *Options) any { return &o.Defaults },
	},
	{
		Name: "force", Values: []string{emptyObject}, Form: formObject, Title: "Forced parameters",
		Help:  "parameters that replace those of chat, messages and responses requests",
		field: func(o *Options) any { return &o.Force },
	},
	{
		Name: "efforts", Values: []string{emptyObject}, Form: formObject, Title: "Reasoning efforts",
		Help: "for each effort of a client, the name that the model server knows, or an object with parameters " +
			"to send in its place; messages requests send the efforts listed here also without reasoning=true",
		field: func(o *Options) any { return &o.Efforts },
	},
	{
		Name: "first_token_timeout", Values: []string{"off"}, Form: formDuration, Title: "Timeout of the first token",
		Help:  "requests without a first token within this time end with an error",
		field: func(o *Options) any { return &o.FirstTokenTimeout },
	},
	{
		Name: "safeguards", Values: []string{"off"}, Form: formModel, Title: "Auto mode checks",
		Help:  "the model that decides which tool calls Claude Code's auto mode runs without a question; self is this model",
		field: func(o *Options) any { return &o.Safeguards },
	},
}

// The forms of values, for errors.
const (
	formTokens   = "a number of tokens up to 100000000, or 0"
	formObject   = "a JSON object of at most 8 KiB"
	formDuration = "a duration up to 24h such as 2m, or off"
	formModel    = "the public name of a chat model, self or off"
)

const (
	maxWindow   = 100_000_000
	maxDuration = 24 * time.Hour
	maxObject   = 8 << 10 // bytes
)

// flags are the values of a boolean option.
var flags = []string{"false", "true"}

// All returns the options in display order.
func All() []Option { return slices.Clone(all[:]) }

// Value returns the value of this option in o.
func (s Option) Value(o Options) string {
	switch field := s.field(&o).(type) {
	case *bool:
		return strconv.FormatBool(*field)
	case *int:
		return strconv.Itoa(*field)
	case *string:
		return cmp.Or(*field, s.Values[0])
	case *Object:
		return string(cmp.Or(*field, emptyObject))
	}
	return s.Values[0]
}

// JSON returns a value of the option as JSON.
func (s Option) JSON(value string) json.RawMessage {
	if !s.isString() {
		return json.RawMessage(value)
	}
	text, _ := json.Marshal(value) // a string has no error
	return text
}

// isString reports whether values of the option are strings in JSON.
func (s Option) isString() bool {
	_, ok := s.field(new(Options)).(*string)
	return ok
}

// Find returns the option with this name.
func Find(name string) (Option, error) {
	i := slices.IndexFunc(all[:], func(s Option) bool { return s.Name == name })
	if i < 0 {
		return Option{}, fmt.Errorf("unknown option %.80q; the options are %s", name, strings.Join(Names(), ", "))
	}
	return all[i], nil
}

// Names returns the names of the options.
func Names() []string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.Name
	}
	return names
}

// Set sets the option with this name. "" sets its default.
func (o *Options) Set(name, value string) error {
	s, err := Find(name)
	if err != nil {
		return err
	}
	next := *o
	if err := s.set(&next, cmp.Or(value, s.Values[0])); err != nil {
		return err
	}
	*o = next
	return nil
}

// set sets the option to a value that is not "".
func (s Option) set(o *Options, value string) error {
	if s.Form == "" && !slices.Contains(s.Values, value) {
		return s.wrong()
	}
	switch field := s.field(o).(type) {
	case *bool:
		*field = value == flags[1]
	case *string:
		if *field = value; value == s.Values[0] {
			*field = ""
			return nil
		}
		d, err := time.ParseDuration(value)
		if s.Form == formDuration && (err != nil || d <= 0 || d > maxDuration) {
			return s.wrong()
		}
	case *int:
		n, err := strconv.Atoi(value)
		if *field = n; err != nil || n < 0 || n > maxWindow {
			return s.wrong()
		}
	case *Object:
		if err := field.UnmarshalJSON([]byte(value)); err != nil || len(*field) > maxObject {
			return s.wrong()
		}
		if s.Name == "efforts" {
			return s.checkEfforts(*field)
		}
		return s.checkParameters([]byte(*field), outputLimits)
	}
	return nil
}

// SetJSON sets the option with this name to a JSON value.
func (o *Options) SetJSON(name string, value []byte) error {
	s, err := Find(name)
	if err != nil {
		return err
	}
	text := string(value)
	if s.isString() && (json.Unmarshal(value, &text) != nil || text == "") {
		return s.wrong()
	}
	return o.Set(name, text)
}

// wrong returns an error that lists the valid values.
func (s Option) wrong() error {
	if s.Form != "" {
		return fmt.Errorf("option %q must be %s", s.Name, s.Form)
	}
	last := len(s.Values) - 1
	return fmt.Errorf("option %q must be %s or %s", s.Name, strings.Join(s.Values[:last], ", "), s.Values[last])
}

// Parse sets an option that is written NAME=VALUE.
func (o *Options) Parse(assignment string) error {
	name, value, ok := strings.Cut(assignment, "=")
	if !ok || value == "" {
		return fmt.Errorf("option %.80q: an option is written NAME=VALUE; the options are %s", assignment,
			strings.Join(Names(), ", "))
	}
	return o.Set(name, value)
}

// Check returns an error if a value is not in the form in which Set keeps it.
func (o Options) Check() error {
	for _, s := range all {
		again := o
		if err := again.Set(s.Name, s.Value(o)); err != nil || again != o {
			return cmp.Or(err, s.wrong())
		}
	}
	return nil
}

// String returns the options that differ from their defaults, as NAME=VALUE separated
// by spaces, without the members of objects.
func (o Options) String() string {
	var list []string
	for _, s := range all {
		if value := s.Value(o); value != s.Values[0] {
			if s.Form == formObject {
				value = "{…}"
			}
			list = append(list, s.Name+"="+value)
		}
	}
	return strings.Join(list, " ")
}
