package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/postern-dev/postern/connector/link"
)

// maxConfigBytes is far above any sensible configuration; a path that names a
// model file by mistake gets an error instead of gigabytes of memory.
const maxConfigBytes = 1 << 20

// ParseConfig decodes a configuration. It is stricter than encoding/json:
// unknown fields, repeated fields, another letter case and anything behind the
// object are errors. It does not say whether the values make sense: see
// [Config.Validate].
func ParseConfig(data []byte) (Config, error) {
	if len(data) > maxConfigBytes {
		return Config{}, fmt.Errorf("the configuration has %d bytes, more than the %d allowed; is this the right file?", len(data), maxConfigBytes)
	}
	// Editors on Windows put a byte order mark first.
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if len(bytes.TrimSpace(data)) == 0 {
		return Config{}, errors.New(`the configuration is empty; write {"tunnel_token": "…", "upstream": "http://localhost:11434"}`)
	}
	if err := checkSyntax(data); err != nil {
		return Config{}, err
	}
	fields, err := object("", data, "tunnel_token", "server", "transport", "max_requests", "max_memory",
		"upstream", "api_key_file", "upstreams", "routes", "allow")
	if err != nil {
		return Config{}, err
	}
	var c Config
	d := decoder{fields: fields}
	d.text("tunnel_token", &c.TunnelToken)
	d.text("server", &c.Server)
	d.text("transport", &c.Transport)
	d.count("max_requests", &c.MaxRequests, link.MostMaxRequests)
	d.text("upstream", &c.Upstream)
	d.text("api_key_file", &c.APIKeyFile)
	d.text("max_memory", &c.MaxMemory)
	d.texts("allow", &c.Allow)
	if d.err != nil {
		return Config{}, d.err
	}
	if c.Upstreams, err = parseUpstreams(fields["upstreams"]); err != nil {
		return Config{}, err
	}
	if c.Routes, err = parseRoutes(fields["routes"]); err != nil {
		return Config{}, err
	}
	return c, nil
}

func parseUpstreams(raw json.RawMessage) (map[string]Upstream, error) {
	if raw == nil {
		return nil, nil
	}
	named, err := object("upstreams", raw)
	if err != nil {
		return nil, err
	}
	upstreams := make(map[string]Upstream, len(named))
	for _, name := range slices.Sorted(maps.Keys(named)) {
		at := "upstreams." + name
		fields, err := object(at, named[name], "BaseUrl", "api_key_file")
		if err != nil {
			return nil, err
		}
		var u Upstream
		d := decoder{at: at, fields: fields}
		d.text("BaseUrl", &u.BaseURL)
		d.text("api_key_file", &u.APIKeyFile)
		if d.err != nil {
			return nil, d.err
		}
		upstreams[name] = u
	}
	return upstreams, nil
}

func parseRoutes(raw json.RawMessage) ([]link.Route, error) {
	if raw == nil {
		return nil, nil
	}
	if kind(raw) != "a list" {
		return nil, fmt.Errorf("routes: must be a list of objects, not %s", kind(raw))
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	routes := make([]link.Route, len(items))
	for i, item := range items {
		at := fmt.Sprintf("routes[%d]", i)
		fields, err := object(at, item, "model", "upstream", "upstream_model")
		if err != nil {
			return nil, err
		}
		d := decoder{at: at, fields: fields}
		d.text("model", &routes[i].Model)
		d.text("upstream", &routes[i].Upstream)
		d.text("upstream_model", &routes[i].UpstreamModel)
		if d.err != nil {
			return nil, d.err
		}
	}
	return routes, nil
}

// decoder reads the fields of one object and keeps the first error.
type decoder struct {
	at     string // where the object is, for errors: "" is the whole document
	fields map[string]json.RawMessage
	err    error
}

func (d *decoder) text(name string, into *string) {
	raw, ok := d.fields[name]
	if !ok || d.err != nil {
		return
	}
	if kind(raw) != "text" {
		d.err = fmt.Errorf("%s: must be text in quotes, not %s", join(d.at, name), kind(raw))
		return
	}
	if err := json.Unmarshal(raw, into); err != nil {
		d.err = fmt.Errorf("%s: %w", join(d.at, name), err)
	}
}

// texts reads a list of texts.
func (d *decoder) texts(name string, into *[]string) {
	raw, ok := d.fields[name]
	if !ok || d.err != nil {
		return
	}
	if err := json.Unmarshal(raw, into); err != nil || kind(raw) != "a list" {
		d.err = fmt.Errorf("%s: must be a list of texts in quotes", join(d.at, name))
	}
}

// count reads a number from 1 to most.
func (d *decoder) count(name string, into *int, most int) {
	raw, ok := d.fields[name]
	if !ok || d.err != nil {
		return
	}
	if err := json.Unmarshal(raw, into); err != nil || *into < 1 || *into > most {
		d.err = fmt.Errorf("%s: must be a whole number from 1 to %d", join(d.at, name), most)
	}
}

// object splits the JSON object in raw into its fields. Without known names any
// name goes; a name that comes twice never does, because readers disagree about
// which of the two counts.
func object(at string, raw json.RawMessage, known ...string) (map[string]json.RawMessage, error) {
	if kind(raw) != "an object" {
		return nil, fmt.Errorf("%s: must be an object in braces, not %s", orDocument(at), kind(raw))
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("%s: %w", orDocument(at), err)
	}
	fields := make(map[string]json.RawMessage)
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", orDocument(at), err)
		}
		name, _ := token.(string) // an object's keys are always text
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("%s: given twice; remove one of the two", join(at, name))
		}
		if len(known) > 0 && !slices.Contains(known, name) {
			return nil, unknownField(at, name, known)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("%s: %w", join(at, name), err)
		}
		fields[name] = value
	}
	return fields, nil
}

func unknownField(at, name string, known []string) error {
	if near := nearest(name, known); near != "" {
		return fmt.Errorf("%s: unknown field; did you mean %q?", join(at, name), near)
	}
	return fmt.Errorf("%s: unknown field; known here: %s", join(at, name), strings.Join(known, ", "))
}

// checkSyntax reports the first syntax error with its line and column, and
// anything that follows the first value.
func checkSyntax(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	var whole json.RawMessage
	if err := dec.Decode(&whole); err != nil {
		at := int64(len(data))
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			at = syntax.Offset
		}
		line, column := position(data, at)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("line %d, column %d: the JSON ends too early; is a brace or a quote missing?", line, column)
		}
		return fmt.Errorf("line %d, column %d: this is not JSON: %w", line, column, err)
	}
	if rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		line, column := position(data, int64(len(data)-len(rest)+1))
		return fmt.Errorf("line %d, column %d: there is something after the closing brace; remove it", line, column)
	}
	return nil
}

// position turns a count of bytes read into a line and a column, both from 1.
func position(data []byte, read int64) (line, column int) {
	before := data[:max(0, min(read-1, int64(len(data))))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}

// kind names the type of a JSON value for a reader who need not know JSON.
func kind(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "text"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	default:
		return "a number"
	}
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func orDocument(at string) string {
	if at == "" {
		return "the configuration"
	}
	return at
}
