package clients

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/go-json-experiment/json"
	"github.com/tailscale/hujson"
	"go.yaml.in/yaml/v3"
)

const (
	maxFile       = 128 << 10 // bytes: the parser of YAML compares each name with all others
	byteOrderMark = "\xef\xbb\xbf"
)

// errUnusual is returned for a valid file that the editors cannot change.
var errUnusual = errors.New("it is written in a way that cannot be changed without a risk; set it up by hand")

// Change is a difference between a file and the members to set.
type Change struct {
	Path     []string
	Old, New any      // nil: the member does not exist
	element  []Member // to put in front of the list at Path
	at       int      // the number of the former element in the list, -1: none
}

// Changes returns what [Format.Merge] would change.
func (f Format) Changes(before []byte, members []Member) ([]Change, error) {
	_, changes, err := f.plan(strings.TrimPrefix(string(before), byteOrderMark), members)
	return changes, err
}

// Merge sets members in the text of a file. Comments, order, line ends and other settings stay. The editors of the
// formats look at lines and values only, so Merge compares what the text means before and after: it fails rather than
// lose a setting.
func (f Format) Merge(before []byte, members []Member) (after []byte, err error) {
	text, marked := strings.CutPrefix(string(before), byteOrderMark)
	want, changes, err := f.plan(text, members)
	switch {
	case err != nil:
		return nil, err
	case len(changes) == 0:
		return before, nil
	}
	windows := strings.Contains(text, "\r\n")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	edit := editJSON
	switch f {
	case TOML:
		edit = editTOML
	case YAML:
		edit = editYAML
		slices.Reverse(changes) // it puts members in front
	}
	for _, c := range changes {
		if text, err = edit(text, c); err != nil {
			return nil, err
		}
	}
	if windows {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	got, err := f.parse(text)
	if err != nil || !equal(got, want) {
		return nil, errUnusual
	}
	if marked {
		text = byteOrderMark + text
	}
	return []byte(text), nil
}

// parse returns what a text means.
func (f Format) parse(text string) (root map[string]any, err error) {
	var value any
	var broken toml.ParseError
	switch f {
	case TOML:
		if err = toml.Unmarshal([]byte(text), &root); errors.As(err, &broken) {
			err = fmt.Errorf("line %d is not valid TOML", broken.Position.Line) // its own text may quote a secret
		}
		value = root
	case YAML:
		err = yaml.Unmarshal([]byte(text), &value)
	default:
		var standard []byte
		if standard, err = hujson.Standardize([]byte(cmp.Or(strings.TrimSpace(text), "{}") + "\n")); err == nil {
			err = json.Unmarshal(standard, &value)
		}
	}
	root, ok := value.(map[string]any)
	switch {
	case err != nil:
		return nil, fmt.Errorf("it cannot be read: %w", err)
	case value != nil && !ok:
		return nil, errors.New("it is not an object with members")
	case root == nil:
		return map[string]any{}, nil
	}
	return root, nil
}

// equal reports whether two values of files are the same.
func equal(a, b any) bool {
	x, err := json.Marshal(a, json.Deterministic(true))
	y, other := json.Marshal(b, json.Deterministic(true))
	return err == nil && other == nil && bytes.Equal(x, y)
}

// plan returns what a file means once the members are set, and the changes for that.
func (f Format) plan(text string, members []Member) (root map[string]any, changes []Change, err error) {
	if len(text) > maxFile {
		return nil, nil, fmt.Errorf("it is longer than %d KiB", maxFile>>10)
	}
	if root, err = f.parse(text); err == nil {
		changes, err = set(root, members)
	}
	return root, changes, err
}

// set sets members of an object, and returns the changes.
func set(root map[string]any, members []Member) (changes []Change, err error) {
	for _, m := range members {
		c := Change{Path: m.Path, Old: at(root, m.Path), New: m.Value, element: m.Element}
		value := m.Value
		if m.Item != "" {
			if value, err = setItem(&c, m); err != nil {
				return nil, err
			}
		}
		if m.Default && c.Old != nil || equal(c.Old, value) {
			continue
		}
		object, last := root, len(m.Path)-1
		for _, name := range m.Path[:last] {
			if object[name] == nil {
				object[name] = map[string]any{}
			}
			child, ok := object[name].(map[string]any)
			if !ok {
				return nil, fmt.Errorf("its member %s is not an object", strings.Join(m.Path, "."))
			}
			object = child
		}
		if object[m.Path[last]] = value; value == nil {
			delete(object, m.Path[last])
		}
		if m.Item != "" {
			c.Old = nil // of the list, nothing goes but what was set before
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// at returns the value at a path, nil if there is none.
func at(value any, path []string) any {
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

// setItem returns a list with an element in front, instead of the former one with the same name.
func setItem(c *Change, m Member) (any, error) {
	list, ok := c.Old.([]any)
	if !ok && c.Old != nil {
		return nil, fmt.Errorf("its member %s is not a list", strings.Join(m.Path, "."))
	}
	element := map[string]any{}
	if _, err := set(element, m.Element); err != nil {
		return nil, err
	}
	c.New = element[m.Item]
	c.at = slices.IndexFunc(list, func(e any) bool { return equal(at(e, []string{m.Item}), c.New) })
	if c.at >= 0 {
		former, _ := list[c.at].(map[string]any)
		for name := range former {
			if element[name] == nil {
				return nil, fmt.Errorf("its element %v of %s has a foreign member %s; remove or rename the element first", c.New,
					strings.Join(m.Path, "."), name)
			}
		}
		list = slices.Delete(slices.Clone(list), c.at, c.at+1)
	}
	return append([]any{element}, list...), nil
}
