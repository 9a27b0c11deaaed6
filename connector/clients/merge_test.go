package clients

import (
	"fmt"
	"strings"
	"testing"
)

var merged = Values{Base: "https://gw.example.com", Model: "my-model", Key: "sk-svc-KEY", Window: 32768}

// small returns a member of each kind.
func small(f Format) []Member {
	members := []Member{
		{Path: []string{"model"}, Value: "m"},
		{Path: []string{"kept"}, Value: "new", Default: true},
		{Path: []string{"providers", "gw", "url"}, Value: "u"},
		{Path: []string{"providers", "gw", "key"}, Value: "k"},
	}
	switch f {
	case JSON:
		return append(members, Member{Path: []string{"env", "OLD"}})
	case YAML:
		return []Member{
			members[1],
			{Path: []string{"models", "gw", "name"}, Value: "gw"},
			{Path: []string{"models", "gw", "key"}, Value: "k"},
			{Path: []string{"models", "gw", "roles"}, Value: []string{"a", "b"}},
			{Path: []string{"models", "gw", "options", "x"}, Value: 1},
			{Path: []string{"models", "gw", "options", "y"}, Value: 2},
		}
	}
	return members
}

const yamlOurs = `  - name: "gw"
    key: "k"
    roles: ["a", "b"]
    options:
      x: 1
      y: 2
`

func TestMerge(t *testing.T) {
	for _, test := range []struct {
		name          string
		format        Format
		before, after string
	}{
		{
			"absent", JSON, "",
			"{\n  \"model\": \"m\",\n  \"kept\": \"new\",\n  \"providers\": {\n    \"gw\": {\n" +
				"      \"url\": \"u\",\n" +
				"      \"key\": \"k\"\n    }\n  }\n}\n",
		},
		{
			"comments, a comma at the end, foreign settings", JSON,
			"// head\n{\n\t\"a\": [1, 2,], // list\n\t/* b */ \"kept\": \"mine\", // c\n\t// end\n}\n// foot",
			"// head\n{\n\t\"a\": [1, 2,], // list\n\t/* b */ \"kept\": \"mine\", // c\n\t// end\n" +
				"\t\"model\": \"m\",\n" +
				"\t\"providers\": {\n\t  \"gw\": {\n\t    \"url\": \"u\",\n\t    \"key\": \"k\"\n\t  }\n\t}\n}\n" +
				"// foot\n",
		},
		{
			"an older run", JSON,
			`{"providers": {"gw": {"url": "old", /* mine */ "more": 1, "key": "k"}, "b": 2}, "kept": 1, "model": "old"}`,
			`{"providers": {"gw": {"url": "u", /* mine */ "more": 1, "key": "k"}, "b": 2}, "kept": 1, "model": "m"}` + "\n",
		},
		{
			"a comment in front of a name", JSON,
			"{\n /*a*/ \"kept\": 1, \"providers\": {\"gw\": {\"url\": \"u\", \"key\": \"k\"}}\n}\n",
			"{\n /*a*/ \"kept\": 1, \"providers\": {\"gw\": {\"url\": \"u\", \"key\": \"k\"}},\n \"model\": \"m\"\n}\n",
		},
		{
			"a comment in an object", JSON, `{"kept": 1, "model": "m", "providers": {"gw": {/*a*/}, "b": [1, 2]}}`,
			"{\"kept\": 1, \"model\": \"m\", \"providers\": {\"gw\": {/*a*/\n      \"url\": \"u\",\n" +
				"      \"key\": \"k\"\n    }, \"b\": [1, 2]}}\n",
		},
		{
			"removed", JSON,
			"{\n  \"env\": {\n    // why\n    \"OLD\": \"1\", // x\n    \"B\": \"2\"\n  },\n" +
				"  \"model\": \"m\", \"kept\": 1, " +
				"\"providers\": {\"gw\": {\"url\": \"u\", \"key\": \"k\"}}\n}\n",
			"{\n  \"env\": {\n    // why\n      // x\n    \"B\": \"2\"\n  },\n  \"model\": \"m\", \"kept\": 1, " +
				"\"providers\": {\"gw\": {\"url\": \"u\", \"key\": \"k\"}}\n}\n",
		},
		{
			"line ends of Windows, a mark", JSON,
			"\xef\xbb\xbf{\r\n  \"model\": \"m\", \"kept\": 1, \"providers\": null\r\n}",
			"{\n  \"model\": \"m\", \"kept\": 1, \"providers\": {\n    \"gw\": {\n" +
				"      \"url\": \"u\",\n" +
				"      \"key\": \"k\"\n    }\n  }\n}\n",
		},
		{
			"absent", TOML, "",
			"model = \"m\"\nkept = \"new\"\n\n[providers.gw]\nurl = \"u\"\nkey = \"k\"\n",
		},
		{
			"comments, foreign settings, no final line end", TOML,
			"# head\n\nmodel = 'old' # mine\nnotify = [\n  \"x\", # y\n]\n\n# other\n[a.b]\nmodel = \"other\"\n" +
				"[providers]\nx = '''\nmodel = 1\n'''",
			"# head\nkept = \"new\"\n\nmodel = \"m\" # mine\nnotify = [\n  \"x\", # y\n]\n\n# other\n[a.b]\n" +
				"model = \"other\"\n" +
				"[providers]\nx = '''\nmodel = 1\n'''\n\n[providers.gw]\nurl = \"u\"\nkey = \"k\"\n",
		},
		{
			"an older run", TOML,
			"kept=1\r\n[providers.gw]\r\nmore = true\r\nkey = \"old\"   # mine\r\n\r\n[z]\r\n",
			"model = \"m\"\nkept=1\n[providers.gw]\nurl = \"u\"\nmore = true\nkey = \"k\"   # mine\n\n[z]\n",
		},
		{"absent", YAML, "", "kept: \"new\"\nmodels:\n" + yamlOurs},
		{"only a comment", YAML, "# head\n", "# head\nkept: \"new\"\nmodels:\n" + yamlOurs},
		{
			"an empty list", YAML, "# head\nkept: 1\nmodels: []\n# a\nrules:\n  - a\n",
			"# head\nkept: 1\nmodels:\n" + yamlOurs + "# a\nrules:\n  - a\n",
		},
		{
			"other models", YAML,
			"kept: 1\nmodels:\n# first\n- name: other\n  key: x # y\n- uses: z\n\n# rules\nrules: []",
			"kept: 1\nmodels:\n" + yamlOurs + "  # first\n  - name: other\n    key: x # y\n  - uses: z\n" +
				"# rules\nrules: []\n",
		},
		{
			"an older run", YAML,
			"kept: 1\nmodels:\n    - name: other\n      key: x\n    # ours\n    - name: gw\n      key: 'old' # mine\n" +
				"      more: 1\n\n# end\n",
			"kept: 1\nmodels:\n  # ours\n  - name: gw\n    key: \"k\" # mine\n    more: 1\n    roles: [\"a\", \"b\"]\n" +
				"    options:\n      x: 1\n      y: 2\n  - name: other\n    key: x\n\n# end\n",
		},
	} {
		t.Run(fmt.Sprint(test.format, " ", test.name), func(t *testing.T) {
			after, _, err := test.format.Merge([]byte(test.before), small(test.format))
			if err != nil || string(after) != test.after {
				t.Fatalf("%v\n%s\nwant\n%s", err, after, test.after)
			}
			again, _, err := test.format.Merge(after, small(test.format))
			if err != nil || string(again) != string(after) {
				t.Errorf("again: %v\n%s", err, again)
			}
		})
	}
}

// TestMergeRefuses tests files that are not changed.
func TestMergeRefuses(t *testing.T) {
	for text, want := range map[string]struct {
		format Format
		part   string
	}{
		"{\n\"a\": 1\n\"b\": sk-1}":      {JSON, "line 3"},
		"{\"a\": 1} /* ":                 {JSON, "line 1"},
		"[]":                             {JSON, "not an object"},
		`{"model": 1, "model": 2}`:       {JSON, "duplicate"},
		`{"providers": [1]}`:             {JSON, "its member providers is not an object"},
		`{"providers": {"gw": 1}}`:       {JSON, "its member providers.gw is not an object"},
		"a = 1\nb = sk-1":                {TOML, "line 2 is not valid TOML"},
		"providers = {gw = {url = 'x'}}": {TOML, "by hand"},
		"a: 1\n---\nb: 2\n":              {YAML, "by hand"},
		"models:\n  a: 1":                {YAML, "models is not a list"},
		"a: 1\nb: [":                     {YAML, "line 2"},
		"- a":                            {YAML, "not an object"},
		strings.Repeat("[", 1<<17):       {JSON, "cannot be read"},
		"a: &a [x]\nb: [*a, *a]\nmodels: *a\nc: 1": {YAML, "by hand"},
	} {
		if after, _, err := want.format.Merge([]byte(text), small(want.format)); err == nil || after != nil ||
			!strings.Contains(err.Error(), want.part) || strings.Contains(err.Error(), "sk-1") {
			t.Errorf("%.100s: %v\n%.100s", text, err, after)
		}
	}
}

// TestMergeClients sets up each client twice, in a file of its own and beside another gateway.
func TestMergeClients(t *testing.T) {
	other := merged
	other.Base, other.Key = "https://other.example.com:8443", "sk-svc-OTHER"
	for _, c := range All() {
		if f := c.File; f != nil {
			var text []byte
			for _, v := range []Values{merged, other, merged, merged} {
				after, _, err := f.Format.Merge(text, f.Members(v))
				if err != nil || !strings.Contains(string(after), v.Key) {
					t.Fatalf("%s: %v\n%s", c.ID, err, after)
				}
				text = after
			}
			if _, changes, err := f.Format.Merge(text, f.Members(merged)); err != nil || len(changes) > 0 {
				t.Errorf("%s: %v, %v", c.ID, changes, err)
			}
			t.Logf("%s:\n%s", c.ID, text)
		}
	}
}

func FuzzMerge(f *testing.F) {
	for _, s := range []string{
		"{\"a\": 1, // xyz\n}", `{"env": {"OLD": 1}}`, "a = 1 # xyz\n[providers.gw]\nurl = 2", "models:\n" +
			"  - name: gw # xyz\n",
		"models:\n- name: a\n- name: gw\n  key: |\n   x\n", "a = [\n[1], # x\n]\n", "a = \"\"\"\n" +
			"[providers.gw]\n\"\"\"",
	} {
		f.Add(s, uint8(0))
		f.Add(s, uint8(1))
		f.Add(s, uint8(2))
	}
	f.Fuzz(func(t *testing.T, before string, kind uint8) {
		format := []Format{JSON, TOML, YAML}[kind%3]
		after, _, err := format.Merge([]byte(before), small(format))
		if err != nil {
			return
		}
		if _, changes, err := format.Merge(after, small(format)); err != nil || len(changes) > 0 {
			t.Errorf("not merged: %v %v\n%q\n%q", changes, err, before, after)
		}
		tree, _ := format.parse(strings.TrimPrefix(before, "\xef\xbb\xbf"))
		if in, has := strings.Count(before, "x"), strings.Count(string(after), "x"); in > has &&
			!strings.Contains(fmt.Sprint(tree), "x") {
			t.Errorf("a comment is missing\n%q\n%q", before, after)
		}
	})
}
