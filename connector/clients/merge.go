package clients

import (
	"bytes"
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
	// The parser of YAML compares each name with all others, and those of JSON and TOML have no bound of nesting.
	maxFile       = 128 << 10 // bytes
	maxNesting    = 500
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
	line := "\n"
	if strings.Contains(text, "\r\n") {
		line = "\r\n"
	}
	edit := editJSON
	switch f {
	case TOML:
		edit = editTOML
	case YAML:
		edit = editYAML
		slices.Reverse(changes) // it puts members in front
	}
	for _, c := range changes {
		if text, err = edit(text, c, line); err != nil {
			return nil, err
		}
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
		if strings.TrimSpace(text) == "" {
			break
		}
		var tree hujson.Value
		if tree, err = hujson.Parse([]byte(text + "\n")); err == nil {
			tree.Standardize()
			err = json.Unmarshal(tree.Pack(), &value)
		}
	}
	root, ok := value.(map[string]any)
	switch {
	case err != nil:
		return nil, fmt.Errorf("it cannot be read: %w", err)
	case root == nil && value != nil && !ok:
		return nil, errors.New("it is not an object with members")
	case root == nil:
		root = map[string]any{}
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
	depth := 0 // or more: brackets in strings count
	for i := range len(text) {
		switch text[i] {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		}
		if depth > maxNesting {
			return nil, nil, errors.New("its brackets are nested too deeply")
		}
	}
	if root, err = f.parse(text); err == nil {
		changes, err = set(root, members)
	}
	return root, changes, err
}

// set sets members of an object, and returns the changes.
func set(root map[string]any, members []Member) (changes []Change, err error) {
	for _, m := range members {
		object, last := root, len(m.Path)-1
		for _, name := range m.Path[:last] {
			child, ok := object[name].(map[string]any)
			if !ok && object[name] != nil {
				return nil, fmt.Errorf("its member %s is not an object", strings.Join(m.Path, "."))
			}
			if !ok {
				child = map[string]any{}
				if m.Value != nil {
					object[name] = child
				}
			}
			object = child
		}
		name := m.Path[last]
		old, exists := object[name]
		c := Change{Path: m.Path, Old: old, New: m.Value}
		switch {
		case m.Item != "":
			added, err := setItem(object, c, m)
			if err != nil {
				return nil, err
			}
			changes = append(changes, added...)
		case m.Value == nil && exists:
			delete(object, name)
			changes = append(changes, c)
		case m.Value != nil && !(exists && m.Default) && !equal(old, m.Value):
			object[name] = m.Value
			changes = append(changes, c)
		}
	}
	return changes, nil
}

// setItem puts an element in front of a list, instead of the former one with the same name.
func setItem(object map[string]any, c Change, m Member) ([]Change, error) {
	list, ok := c.Old.([]any)
	if !ok && c.Old != nil {
		return nil, fmt.Errorf("its member %s is not a list", strings.Join(c.Path, "."))
	}
	element := map[string]any{}
	if _, err := set(element, m.Element); err != nil {
		return nil, err
	}
	c.Old, c.New, c.element = nil, element[m.Item], m.Element
	c.at = slices.IndexFunc(list, func(e any) bool {
		former, _ := e.(map[string]any)
		return former[m.Item] == c.New
	})
	switch former := list[max(0, c.at):]; {
	case c.at == 0 && equal(former[0], element):
		return nil, nil
	case c.at >= 0:
		for name := range former[0].(map[string]any) {
			if element[name] == nil {
				return nil, fmt.Errorf("its element %v of %s has a foreign member %s; remove or rename the element first", c.New,
					strings.Join(c.Path, "."), name)
			}
		}
		list = slices.Delete(slices.Clone(list), c.at, c.at+1)
	}
	object[c.Path[len(c.Path)-1]] = append([]any{element}, list...)
	return []Change{c}, nil
}
