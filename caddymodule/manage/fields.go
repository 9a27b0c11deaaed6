package manage

import (
	"reflect"
	"strings"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Field is a field of a request. The tags of its struct describe it:
//
//	json     the name in the body, or in the query of GET and DELETE
//	path     the field has no name: it is the record of the path, and the argument of the command
//	need     "required": it must not be missing or empty; "filled": it may be missing, but not empty
//	help     one line: the description in docs/openapi.json, and the help of the flag
//	flaghelp the help of the flag, if it differs
//	flag     the name of the flag, if it is not the one of json with dashes; "-": there is no flag
//	default  the default of the flag
//	format   "duration": a text that is a duration, such as 24h, which a flag may also give as 30d
type Field struct {
	Name, Need, Help, FlagHelp, Flag, Default, Format string

	// Path: it is the record of the path. Set: it is a set of limits, of the type limits.UsageLimits. It has a flag for
	// each, whose name begins with Flag. If Name is "", the limits are fields of the request themselves.
	Path, Set bool
	Type      reflect.Type
}

// Fields returns the fields of the operation's request, except "account", which all requests have.
func (o Operation) Fields() []Field { return fieldsIn(o.Request) }

func fieldsIn(t reflect.Type) (all []Field) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		field := Field{
			Name: name, Need: f.Tag.Get("need"), Help: f.Tag.Get("help"), FlagHelp: f.Tag.Get("flaghelp"),
			Flag: f.Tag.Get("flag"), Default: f.Tag.Get("default"), Format: f.Tag.Get("format"),
			Path: f.Tag.Get("path") != "", Type: f.Type,
			Set: f.Type == reflect.TypeFor[limits.UsageLimits]() || f.Type == reflect.TypeFor[GivenUsageLimits](),
		}
		switch {
		case f.Type == reflect.TypeFor[givenLimits]():
			all = append(all, fieldsIn(reflect.TypeFor[store.Limits]())...)
			continue
		case f.Anonymous && !field.Set:
			all = append(all, fieldsIn(f.Type)...)
			continue
		case field.Path:
			field.Name, field.Flag = "", "-"
		case field.Flag == "" && !field.Set:
			field.Flag = strings.ReplaceAll(name, "_", "-")
		}
		if field.FlagHelp == "" {
			field.FlagHelp = field.Help
		}
		all = append(all, field)
	}
	return all
}
