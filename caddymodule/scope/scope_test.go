package scope

import (
	"strings"
	"testing"
	"time"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"*", "meta/llama-3:70b", true},
		{"**", "x", true},
		{"?", "", false},
		{"?", "a", true},
		{"*?", "", false},
		{"*?*??", "ab", false},
		{"qwen*", "qwen3:8b", true},
		{"qwen*", "Qwen3:8b", false},
		{"qwen*", "my-qwen3", false},
		{"qwen", "qwen3", false},
		{"qwen3", "qwen", false},
		{"meta/*", "meta/llama/70b", true},
		{"*/llama", "meta/llama", true},
		{"*:70b", "meta/llama-3:70b", true},
		{"gpt-?", "gpt-4", true},
		{"gpt-?", "gpt-4o", false},
		{"a*b*c", "a-b-b-c", true},
		{"a*b*c", "a-c-b", false},
		{"*ab", "aab", true},
		{"*a?b*", "xabay", false},
		{"*a?b*", "xaaabay", true},
		{"[a]", "a", false},
		{"[a]", "[a]", true},
		{`\*`, "*", false},
		{`\*`, `\anything`, true},
	} {
		if got := Match(c.pattern, c.name); got != c.want {
			t.Errorf("Match(%q, %q) = %v, want %v", c.pattern, c.name, got, c.want)
		}
	}
}

// A matcher that backtracks into every star would need years for this name.
func TestMatchPathologicalPattern(t *testing.T) {
	t.Parallel()
	pattern := strings.Repeat("*a", 2000) + "*b"
	name := strings.Repeat("a", 10000)
	start := time.Now()
	if Match(pattern, name) {
		t.Error("matched a name without b")
	}
	if d := time.Since(start); d > time.Minute {
		t.Errorf("took %v", d)
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	s, err := Parse("meta/*,gpt-?,*a*a*b")
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { s.Allows("qwen3:8b-aaaaaaaaaaaaaaaa") }); n != 0 {
		t.Errorf("Allows allocates %v times", n)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want, errPart string }{
		{in: "*", want: "*"},
		{in: " qwen* , meta/llama-3:70b ", want: "qwen*,meta/llama-3:70b"},
		{in: "a,a", want: "a,a"},
		{in: "", errPart: `"*" allows all`},
		{in: " \t", errPart: `"*" allows all`},
		{in: "a,,b", errPart: "extra comma"},
		{in: "a,", errPart: "extra comma"},
		{in: "a b", errPart: `contains ' '`},
		{in: "é*", errPart: `contains 'é'`},
		{in: "[a-z]*", errPart: `contains '['`},
		{in: strings.Repeat("a", MaxName+1), errPart: "129 characters, more than 128"},
		{in: strings.Repeat("a,", MaxScope/2) + "a", errPart: "4097 bytes, more than 4096"},
	} {
		got, err := Parse(c.in)
		if c.errPart != "" {
			if err == nil || !strings.Contains(err.Error(), c.errPart) {
				t.Errorf("Parse(%.20q): error %v, want one with %q", c.in, err, c.errPart)
			}
			continue
		}
		if err != nil || got.String() != c.want {
			t.Errorf("Parse(%q) = %q, %v, want %q", c.in, got, err, c.want)
		}
	}
}

func TestAllows(t *testing.T) {
	t.Parallel()
	s, err := Parse("qwen*, team/?/chat")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"qwen3:8b": true, "team/a/chat": true, "team/ab/chat": false, "gpt": false, "": false,
	} {
		if got := s.Allows(name); got != want {
			t.Errorf("Allows(%q) = %v, want %v", name, got, want)
		}
	}
	if (Scope{}).Allows("qwen") || (Scope{}).Allows("") {
		t.Error("the zero scope allows something")
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "meta/llama-3.1:70b", "me@home+gpu_1", strings.Repeat("x", MaxName)} {
		if err := CheckName(good); err != nil {
			t.Errorf("CheckName(%q): %v", good, err)
		}
	}
	for _, bad := range []string{
		"", " a", "a b", "a*", "a?", "a,b", "é", "a\n", "a\x00", "\xff",
		strings.Repeat("x", MaxName+1),
	} {
		if CheckName(bad) == nil {
			t.Errorf("CheckName(%q) accepts it", bad)
		}
	}
}

// FuzzMatch compares Match with a simple implementation: a table over all pairs of prefixes.
func FuzzMatch(f *testing.F) {
	for _, s := range [][2]string{
		{"*", "x"},
		{"a*b?c", "axxbyc"},
		{"*a*a*a*b", "aaaaaaaaab"},
		{"*?*??", "\U0001f600"},
		{"?\xff*", "é\xff"},
		{"*ab*ab", "abab"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern)*len(name) > 1<<16 {
			return // the table would only be slow
		}
		if got, want := Match(pattern, name), matchTable(pattern, name); got != want {
			t.Errorf("Match(%q, %q) = %v, by the table %v", pattern, name, got, want)
		}
	})
}

// FuzzParse checks that a scope equals the parsed form of its own text, and that Parse accepts only
// patterns.
func FuzzParse(f *testing.F) {
	f.Add("*")
	f.Add(" a , b*?")
	f.Add("a,,b")
	f.Fuzz(func(t *testing.T, in string) {
		s, err := Parse(in)
		if err != nil {
			return
		}
		again, err := Parse(s.String())
		if err != nil || again.String() != s.String() {
			t.Errorf("Parse(%q) gives %q, which parses to %q, %v", in, s, again, err)
		}
	})
}

func matchTable(pattern, name string) bool {
	ps, ns := []byte(pattern), []byte(name)
	// table[j] says whether the pattern so far matches the first j
	// characters of the name.
	table := make([]bool, len(ns)+1)
	table[0] = true
	for _, p := range ps {
		next := make([]bool, len(ns)+1)
		next[0] = table[0] && p == '*'
		for j, n := range ns {
			switch p {
			case '*':
				next[j+1] = table[j+1] || next[j]
			case '?':
				next[j+1] = table[j]
			default:
				next[j+1] = table[j] && p == n
			}
		}
		table = next
	}
	return table[len(ns)]
}

// Names are compared by their canonical forms, without a copy of them.
func TestCompare(t *testing.T) {
	names := []string{
		"", "a", "A", "a:latest", "A:LATEST", "b", "ab", ":latest", "latest", "a:latest:latest", "É", "é", "e", "K", "k",
		"Qwen/Qwen3-8B", "qwen/qwen3-8b:latest", "日本",
	}
	for _, a := range names {
		for _, b := range names {
			if got, want := Compare(a, b), strings.Compare(Canonical(a), Canonical(b)); got != want {
				t.Errorf("Compare(%q, %q) = %d, want %d", a, b, got, want)
			}
		}
	}
}
