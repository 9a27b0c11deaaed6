package clients

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/go-json-experiment/json"
	"github.com/tailscale/hujson"
	"go.yaml.in/yaml/v3"
)

// errUnusual is returned for a valid file that the editors cannot change.
var errUnusual = errors.New("it is written in a way that cannot be changed without a risk; set it up by hand")

// Change is a difference between a file and the members to set.
type Change struct {
	Path     []string
	Old, New any // nil: the member does not exist
}

// Merge sets members in the text of a file, and returns what it changed. Comments, order and other settings stay. The
// editors of the formats are simple, so Merge compares what the text means before and after: it fails rather than lose
// a setting.
func (f Format) Merge(before []byte, members []Member) (after []byte, changes []Change, err error) {
	text := strings.TrimPrefix(string(before), "\xef\xbb\xbf") // a mark of Windows
	want, err := f.parse(text)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range members {
		c := Change{Path: m.Path, Old: valueAt(want, m.Path), New: m.Value}
		if m.Default && c.Old != nil || equal(c.Old, c.New) {
			continue
		}
		if err := setAt(want, m.Path, m.Value); err != nil {
			return nil, nil, err
		}
		changes = append(changes, c)
	}
	if len(changes) == 0 {
		return before, nil, nil
	}
	edit := map[Format]func(string, []Change) (string, error){JSON: editJSON, TOML: editTOML, YAML: editYAML}[f]
	if text = strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n"); text != "" {
		text += "\n"
	}
	if text, err = edit(text, changes); err != nil {
		return nil, nil, err
	}
	got, err := f.parse(text)
	if err != nil || !equal(got, want) {
		return nil, nil, errUnusual
	}
	return []byte(text), changes, nil
}

// parse returns what a text means.
func (f Format) parse(text string) (root map[string]any, err error) {
	var value any = map[string]any{}
	var broken toml.ParseError
	switch {
	case strings.TrimSpace(text) == "":
	case f == TOML:
		if err = toml.Unmarshal([]byte(text), &value); errors.As(err, &broken) {
			err = fmt.Errorf("line %d is not valid TOML", broken.Position.Line) // its own text may quote a secret
		}
	case f == YAML:
		err = yaml.Unmarshal([]byte(text), &value)
	default:
		var standard []byte
		if standard, err = hujson.Standardize([]byte(text + "\n")); err == nil {
			value = nil // an array would not be decoded into an object
			err = json.Unmarshal(standard, &value)
		}
	}
	root, ok := value.(map[string]any)
	switch {
	case err != nil:
		return nil, fmt.Errorf("it cannot be read: %w", err)
	case !ok:
		return nil, errors.New("it is not an object with members")
	}
	if list := root[yamlList]; f == YAML && list != nil {
		root[yamlList], err = byName(list)
	}
	return root, err
}

// byName returns a list as an object, whose members are the elements by their names.
func byName(value any) (map[string]any, error) {
	list, ok := value.([]any)
	if !ok {
		return nil, errors.New("its member " + yamlList + " is not a list")
	}
	object := map[string]any{}
	for _, element := range list {
		name, ok := valueAt(element, []string{"name"}).(string)
		if !ok {
			name = literal(element)
		}
		if object[name] != nil {
			return nil, errUnusual
		}
		object[name] = element
	}
	return object, nil
}

// equal reports whether two values of files are the same.
func equal(a, b any) bool {
	x, err := json.Marshal(a, json.Deterministic(true))
	y, other := json.Marshal(b, json.Deterministic(true))
	return err == nil && other == nil && bytes.Equal(x, y)
}

// valueAt returns the value at a path, nil if there is none.
func valueAt(value any, path []string) any {
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

// setAt sets the member at a path; nil removes it.
func setAt(object map[string]any, path []string, value any) error {
	last := len(path) - 1
	for i, name := range path[:last] {
		if object[name] == nil {
			object[name] = map[string]any{}
		}
		child, ok := object[name].(map[string]any)
		if !ok {
			return fmt.Errorf("its member %s is not an object", strings.Join(path[:i+1], "."))
		}
		object = child
	}
	if object[path[last]] = value; value == nil {
		delete(object, path[last])
	}
	return nil
}
