package manage

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/limits"
)

// Field is a field of a request. The tags of its struct describe it:
//
//	json      the name in the body, or in the query of GET and DELETE
//	path      "record": it is the record of the path, and the argument of the command
//	need      "required": it must not be missing or empty; "filled": it may be missing, but not empty
//	null      what null means; "": it must not be null
//	help      one line: the description in docs/openapi.json, and the help of the flag
//	flaghelp  the help of the flag, if it differs
//	flag      the name of the flag, if it is not the one of json with dashes; "-": there is no flag
//	editflag  the name of the flag of commands that change a record, if it differs; edithelp: its help
//	default   the default of the flag
//	format    of the flag: "duration": a text that is a duration, such as 24h or 30d; "days": a number of days, such as
//	          30d, or never for 0; "list": words, separated by commas; "true": a text that is "true" or absent
type Field struct {
	Name, Need, Null, Help, FlagHelp, Flag, Default, Format string

	Type reflect.Type
	// Set is true for a set of limits, of the type limits.UsageLimits. Each limit has a flag whose name begins with
	// Flag, and whose help begins with FlagHelp. If Name is "", the limits are members of the request itself.
	Set bool
}

// The values of the tag need.
const (
	needRequired = "required"
	needFilled   = "filled"
)

// fieldList is the list of the fields of a request.
type fieldList []Field

// requestFields returns the fields of a request. edit: it changes a record, so that no field is required.
func requestFields(request reflect.Type, edit bool) (all fieldList) {
	for f := range request.Fields() {
		tag := f.Tag.Get
		field := Field{
			Need: tag("need"), Null: tag("null"), Help: tag("help"), FlagHelp: tag("flaghelp"), Flag: tag("flag"),
			Default: tag("default"), Format: tag("format"),
			Type: f.Type, Set: f.Type == reflect.TypeFor[limits.UsageLimits](),
		}
		field.Name, _, _ = strings.Cut(tag("json"), ",")
		switch {
		case field.Name == "-":
			continue
		case f.Anonymous && !field.Set:
			embedded := requestFields(f.Type, edit)
			all = append(all, slices.DeleteFunc(embedded, func(e Field) bool {
				return slices.ContainsFunc(all, func(own Field) bool { return own.Name == e.Name })
			})...)
			continue
		case field.Set:
		default:
			field.Flag = cmp.Or(field.Flag, strings.ReplaceAll(field.Name, "_", "-"))
			field.FlagHelp = cmp.Or(field.FlagHelp, field.Help)
		}
		if edit {
			field.Need, field.Flag = "", cmp.Or(tag("editflag"), field.Flag)
			field.FlagHelp = cmp.Or(tag("edithelp"), field.FlagHelp)
		}
		all = append(all, field)
	}
	return all
}

// find returns the field with a name.
func (all fieldList) find(name string) (Field, bool) {
	if name == "account" {
		return Field{Name: name, Type: reflect.TypeFor[string]()}, true
	}
	return find(all.flat(), func(f Field) bool { return f.Name == name })
}

// flat returns the fields, with the limits of a set without a name in its place.
func (all fieldList) flat() (flat fieldList) {
	for _, f := range all {
		if f.Name != "" {
			flat = append(flat, f)
			continue
		}
		flat = append(flat, requestFields(f.Type, true)...)
	}
	return flat
}

// names lists the names of the fields for an error.
func (all fieldList) names() string {
	var names []string
	for _, f := range all.flat() {
		names = append(names, f.Name)
	}
	return strings.Join(append(names, "account"), ", ")
}
