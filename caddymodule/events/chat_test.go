package events

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const console = "https://gw.example.com/console/"

var (
	slackControl   = regexp.MustCompile(`[<>]|&(?:[^lga]|$)`)
	slackLink      = regexp.MustCompile(`^<([^<>|]+)\|Open the console>$`)
	discordLink    = regexp.MustCompile(`^<[^<>\s]+>$`)
	discordEscapes = regexp.MustCompile("\\\\[!-/:-@[-`{-~]")
	asciiHeader    = regexp.MustCompile(`^[!-~][ -~]*$`)
	variable       = regexp.MustCompile(`\$\w+`)
)

// strictly decodes JSON, and fails the test if it has fields that v lacks.
func strictly(t *testing.T, body []byte, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	must(t, d.Decode(v))
}

// A fakeChat accepts the documented posts of a service, and returns the text and the link that people see.
type fakeChat func(t *testing.T, p Payload) (text, link string)

// jsonOnly checks the header of a post in JSON.
func jsonOnly(t *testing.T, h http.Header) {
	t.Helper()
	if len(h) != 1 || h.Get("Content-Type") != "application/json" {
		t.Errorf("header %v", h)
	}
}

var slackEntities = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&")

// fakeSlack is an incoming webhook of Slack: texts of at most 3,000 characters, in which <, > and & are control
// characters. A plain text has no other markup.
func fakeSlack(t *testing.T, p Payload) (text, link string) {
	t.Helper()
	jsonOnly(t, p.Header)
	type section struct {
		Type string `json:"type"`
		Text struct {
			Type     string `json:"type"`
			Text     string `json:"text"`
			Emoji    *bool  `json:"emoji"`
			Verbatim *bool  `json:"verbatim"`
		} `json:"text"`
	}
	var m struct {
		Text        string    `json:"text"`
		Blocks      []section `json:"blocks"`
		UnfurlLinks *bool     `json:"unfurl_links"`
		UnfurlMedia *bool     `json:"unfurl_media"`
	}
	strictly(t, p.Body, &m)
	plain := m.Blocks[0].Text
	if m.Blocks[0].Type != "section" || plain.Type != "plain_text" || plain.Emoji == nil || *plain.Emoji ||
		plain.Verbatim != nil || m.Text != plain.Text || *m.UnfurlLinks || *m.UnfurlMedia ||
		utf8.RuneCountInString(plain.Text) > 3000 {
		t.Errorf("message %s", p.Body)
	}
	if control := slackControl.FindString(plain.Text); control != "" {
		t.Errorf("%q controls Slack: %s", control, plain.Text)
	}
	if len(m.Blocks) > 1 {
		l := m.Blocks[1].Text
		parts := slackLink.FindStringSubmatch(l.Text)
		if len(m.Blocks) != 2 || l.Type != "mrkdwn" || l.Verbatim == nil || !*l.Verbatim || parts == nil {
			t.Fatalf("link %+v", l)
		}
		link = slackEntities.Replace(parts[1])
	}
	return slackEntities.Replace(plain.Text), link
}

// fakeDiscord is a webhook of Discord: at most 2,000 characters. A backslash escapes punctuation.
func fakeDiscord(t *testing.T, p Payload) (text, link string) {
	t.Helper()
	jsonOnly(t, p.Header)
	var m struct {
		Content         string `json:"content"`
		Flags           int    `json:"flags"`
		AllowedMentions struct {
			Parse *[]string `json:"parse"`
		} `json:"allowed_mentions"`
	}
	strictly(t, p.Body, &m)
	if m.Flags != 4 || m.AllowedMentions.Parse == nil || len(*m.AllowedMentions.Parse) != 0 ||
		utf8.RuneCountInString(m.Content) > 2000 {
		t.Errorf("message of %d characters: %s", utf8.RuneCountInString(m.Content), p.Body)
	}
	text, link, _ = strings.Cut(m.Content, "\n")
	if link != "" && !discordLink.MatchString(link) {
		t.Errorf("link %q", link)
	}
	bare := discordEscapes.ReplaceAllString(text, "")
	if strings.ContainsAny(bare, "\\`*_~|<>@#[]\n") || strings.Contains(bare, "://") {
		t.Errorf("markup in %q", text)
	}
	return discordEscapes.ReplaceAllStringFunc(text, func(s string) string { return s[1:] }), strings.Trim(link, "<>")
}

// fakeNtfy is a topic of ntfy: a text of at most 4,096 bytes, and headers for the rest.
func fakeNtfy(t *testing.T, p Payload) (text, link string) {
	t.Helper()
	known := []string{"Content-Type", "Title", "Priority", "Tags", "Click"}
	for name, values := range p.Header {
		if !slices.Contains(known, name) || len(values) != 1 || !asciiHeader.MatchString(values[0]) {
			t.Errorf("header %s: %q", name, values)
		}
	}
	if !slices.Contains([]string{"default", "high"}, p.Header.Get("Priority")) || p.Header.Get("Title") == "" ||
		len(p.Body) == 0 || len(p.Body) > 4096 || !utf8.Valid(p.Body) || bytes.ContainsAny(p.Body, "\r\n") {
		t.Errorf("message %v %q", p.Header, p.Body)
	}
	return string(p.Body), p.Header.Get("Click")
}

// fakeReader reads the format text: a line, and a line with the link.
func fakeReader(t *testing.T, p Payload) (text, link string) {
	t.Helper()
	if p.Header.Get("Content-Type") != "text/plain; charset=utf-8" || !strings.HasSuffix(string(p.Body), "\n") {
		t.Errorf("message %v %q", p.Header, p.Body)
	}
	text, link, _ = strings.Cut(strings.TrimSuffix(string(p.Body), "\n"), "\n")
	return text, link
}

var chats = map[string]fakeChat{
	FormatSlack: fakeSlack, FormatDiscord: fakeDiscord, FormatNtfy: fakeNtfy, FormatText: fakeReader,
}

// people are all events for people, with the values of their data.
func people(value string) (events []Event) {
	for name, n := range notices {
		data := map[string]any{"account": value}
		for _, v := range variable.FindAllString(n.sentence+" "+n.page, -1) {
			data[v[1:]] = value
		}
		events = append(events, Event{name, data, AlertBegins}, Event{name, maps.Clone(data), AlertEnds})
	}
	return events
}

// Each format has a test, and each alert a title, a sentence and a link to its page.
func TestChatFormats(t *testing.T) {
	for format, read := range chats {
		for _, e := range people("box-1.lan") {
			text, link := read(t, Render(format, e, console))
			if !strings.HasSuffix(text, ". (account box-1.lan)") || strings.Contains(text, "$") ||
				!strings.HasPrefix(link, console) {
				t.Errorf("%s, %s: %q, %q", format, e.Name, text, link)
			}
			e.Data["account"] = "default"
			if text, link := read(t, Render(format, e, "")); strings.Contains(text, "Account") || link != "" {
				t.Errorf("%s, %s without a console: %q, %q", format, e.Name, text, link)
			}
		}
		for _, e := range []Event{
			{Name: eventKeyChanged, Alert: AlertBegins}, {Name: eventConnectorOnline, Data: map[string]any{}},
		} {
			if p := Render(format, e, console); p.Body != nil {
				t.Errorf("%s posts %s: %s", format, e.Name, p.Body)
			}
		}
	}
	if len(chats) != len(Formats)-1 {
		t.Errorf("formats %q", Formats)
	}
}

// People read times and names as they are.
func TestChatText(t *testing.T) {
	e := Event{eventConnectorOffline, map[string]any{
		"account": "default", "connector_id": "con_1", "connector_name": "gpu_box",
		"since": "2026-11-21T15:04:05Z",
	}, AlertBegins}
	for format, read := range chats {
		text, link := read(t, Render(format, e, console))
		if text != "The connector gpu_box has been offline since 21 Nov, 15:04 UTC." ||
			link != console+"connectors/show?id=con_1" {
			t.Errorf("%s: %q, %q", format, text, link)
		}
	}
	e = Event{eventKeyLimit, map[string]any{
		"account": "default", "key_id": "key_1", "key_name": "laptop", "limit": "tokens_per_day", "percent": "80",
		"used": "800", "max": "1000",
	}, AlertBegins}
	if got := string(Render(FormatNtfy, e, console).Body); got !=
		"The key laptop has used 80% of its tokens per day: 800 of 1000." {
		t.Errorf("a limit: %q", got)
	}
	up := Render(FormatNtfy, Event{eventUpstreamUp, map[string]any{"account": "default"}, AlertEnds}, console)
	if up.Header.Get("Priority") != "default" || up.Header.Get("Tags") != "white_check_mark" {
		t.Errorf("the end of an alert: %v", up.Header)
	}
}

// hostile are names that devices could choose.
var hostile = []string{
	"@everyone", "@here", "<!channel>", "<!here|here>", "<!subteam^S1>", "<@U1>", "<@&1>", "<#C1>", "@someone#1234",
	"<https://evil.example|the console>", "[the console](https://evil.example)", "https://evil.example/x", "evil.example",
	"<https://evil.example>", "*bold*", "_it_", "~~gone~~", "`code`", "```\ncode", "||spoiler||", "> quote", "# title",
	"a\n# title\n@everyone", "a\r\nTags: skull\r\n\r\nbody", "&lt;!channel&gt;", "&amp;lt;", `\`, `\\@everyone`,
	`\<!channel>`,
	":skull:", "<:a:1>", "<t:1:R>", "$connector_name", "${remedy}", "$", "%s%d", `","text":"x`, "\x00\x1b[31mred",
	"\u202egnp.exe", "\u200b@everyone", "\u2028line", "bad\xff\xfeutf8", "", " ", strings.Repeat("@everyone ", 1000),
	strings.Repeat("*", 5000), strings.Repeat("😀", 5000), strings.Repeat("é", 5000), strings.Repeat("<", 5000),
}

func expectText(t *testing.T, name string) {
	t.Helper()
	want := Event{Data: map[string]any{"v": name}}.value("v")
	for format, read := range chats {
		for _, e := range people(name) {
			if e.Alert == AlertEnds {
				continue // as the other
			}
			text, link := read(t, Render(format, e, console))
			u, err := url.Parse(link)
			if err != nil || !strings.HasPrefix(link, console) || strings.ContainsAny(link, "<>|\"' \n") || len(link) > maxLink {
				t.Errorf("%s, %s, %q: link %q, %v", format, e.Name, name, link, err)
			} else if id := u.Query().Get("id"); u.RawQuery != "" && u.Query().Has("id") && id != want {
				t.Errorf("%s, %s, %q: link to %q", format, e.Name, name, id)
			}
			if !strings.HasSuffix(text, " (account "+want+")") || strings.ContainsAny(text, "\r\n\x00\x1b\u202e\u200b") {
				t.Errorf("%s, %s, %q: %q", format, e.Name, name, text)
			}
		}
	}
}

// No name is more than text: it mentions nobody, links nowhere and has no format.
func FuzzHostileNames(f *testing.F) {
	for _, name := range hostile {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) { expectText(t, name) })
}
