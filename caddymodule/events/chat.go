package events

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/text"
)

// The formats of a webhook's posts. All but CloudEvents are for people.
const (
	FormatCloudEvents = "cloudevents"
	FormatSlack       = "slack"
	FormatDiscord     = "discord"
	FormatNtfy        = "ntfy"
	FormatText        = "text"
)

// Formats lists the formats, the default first.
var Formats = []string{FormatCloudEvents, FormatSlack, FormatDiscord, FormatNtfy, FormatText}

// EventTest is the event that a test of a webhook posts.
const EventTest = "test"

const (
	// maxValue bounds a value in a message, and maxLink a link, in bytes. Discord accepts 2,000 characters, and each
	// character of a value may be escaped.
	maxValue = 120
	maxLink  = 700
)

// notice is what people read about an event: a title, a sentence, and a page of the console. $name is a value of the
// event's data.
type notice struct{ title, sentence, page string }

const (
	connectorPage = "connectors/show?id=$connector_id"
	modelPage     = "models/show?name=$deployment"
	keyPage       = "keys/$key_id"
)

var notices = map[string]notice{
	EventTest: {"Test", "This is a test. Alerts from Postern arrive here.", "home"},
	eventConnectorOffline: {
		"Connector offline", "The connector $connector_name has been offline since $since.", connectorPage,
	},
	eventConnectorOnline: {"Connector online", "The connector $connector_name is online again.", connectorPage},
	eventUpstreamDown: {
		"Model server down", "The connector $connector_name has not reached its model server $upstream since $since.",
		connectorPage,
	},
	eventUpstreamUp: {
		"Model server up", "The connector $connector_name can reach its model server $upstream again.", connectorPage,
	},
	eventModelHanging: {
		"Model server hanging", "The model $deployment on $connector_name is not answering: $remedy.", modelPage,
	},
	eventModelCutsPrompts: {
		"Prompts cut", "The model server of $deployment on $connector_name drops part of each long prompt: $remedy.",
		modelPage,
	},
	eventModelSlow: {
		"Model slow", "The model $deployment on $connector_name is slow: $tokens_per_second instead of " +
			"$usual_tokens_per_second tokens/s.", modelPage,
	},
	eventModelAnswering: {
		"Model answers", "The model $deployment on $connector_name is working normally again.", modelPage,
	},
	eventPairingRequested: {
		"Device waiting", "A device that calls itself $hostname is waiting for approval, from $remote.",
		"pairings/$pairing_id",
	},
	eventPairingApproved: {
		"Device approved", "The device $hostname was approved as the connector $connector_name.", connectorPage,
	},
	eventPairingLimited: {
		"Wrong pairing codes", "Clients are trying so many wrong pairing codes that a device with the right one may have " +
			"to wait.",
		"connectors",
	},
	eventKeyExpiring:  {"Key expiring", "The key $key_name expires on $expires_at.", keyPage},
	eventKeyExpired:   {"Key expired", "The key $key_name has expired.", keyPage},
	eventKeyLimit:     {"Key limit", "The key $key_name has used $percent% of its $limit: $used of $max.", keyPage},
	eventGroupLimit:   {"Group limit", "The group $group_name has used $percent% of its $limit: $used of $max.", "groups"},
	eventAccountLimit: {"Account limit", "The account has used $percent% of its $limit: $used of $max.", "usage"},
}

// Payload is what a webhook posts.
type Payload struct {
	Header http.Header
	Body   []byte
}

// Render returns the post about an event in a format for people, without a body if the event is not for them. console
// is the URL of the console, or "".
func Render(format string, e Event, console string) (p Payload) {
	n, ok := notices[e.Name]
	if !ok || e.Alert == NoAlert {
		return p
	}
	link := console
	page := os.Expand(n.page, func(name string) string { return url.QueryEscape(e.value(name)) })
	if console != "" && len(console+page) <= maxLink {
		link += page
	}
	p.Header = http.Header{"Content-Type": {"application/json"}}
	switch format {
	case FormatSlack:
		p.Body = slack(e.sentence(n, slackEscape), slackEscape(link))
	case FormatDiscord:
		p.Body = discord(e.sentence(n, discordEscape), link)
	case FormatNtfy:
		p.Body = []byte(e.sentence(n, unescaped))
		p.Header = http.Header{
			"Content-Type": {"text/plain; charset=utf-8"}, "Title": {n.title}, "Priority": {"high"}, "Tags": {"warning"},
		}
		if e.Alert == AlertEnds {
			p.Header.Set("Priority", "default")
			p.Header.Set("Tags", "white_check_mark")
		}
		if link != "" {
			p.Header.Set("Click", link)
		}
	default:
		p.Body = []byte(strings.TrimSpace(e.sentence(n, unescaped)+"\n"+link) + "\n")
		p.Header.Set("Content-Type", "text/plain; charset=utf-8")
	}
	return p
}

// value returns a value of the event's data for people: on one line, not too long, and times without seconds.
func (e Event) value(name string) string {
	value, _ := e.Data[name].(string)
	if at, err := time.Parse(time.RFC3339, value); err == nil {
		return at.UTC().Format("2 Jan, 15:04 UTC")
	}
	if name == "limit" {
		value = strings.ReplaceAll(value, "_", " ")
	}
	return text.Within(value, maxValue)
}

// sentence returns the sentence of a notice with escaped values. Devices and clients choose some of them.
func (e Event) sentence(n notice, escape func(string) string) string {
	sentence := os.Expand(n.sentence, func(name string) string { return escape(e.value(name)) })
	if account := e.value("account"); account != store.DefaultAccount {
		sentence += " (account " + escape(account) + ")"
	}
	return sentence
}

func unescaped(s string) string { return s }

// slackEscape escapes the characters that Slack reads in all texts.
var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace

// slack returns a message for an incoming webhook of Slack. Clients that show blocks read no markup in a plain text.
// text is for notifications.
func slack(sentence, link string) []byte {
	type block map[string]any
	blocks := []block{{"type": "section", "text": block{"type": "plain_text", "text": sentence, "emoji": false}}}
	if link != "" {
		open := "<" + link + "|Open the console>"
		blocks = append(blocks, block{"type": "section", "text": block{"type": "mrkdwn", "text": open, "verbatim": true}})
	}
	return encode(block{"text": sentence, "blocks": blocks, "unfurl_links": false, "unfurl_media": false})
}

// discordMarkup are the characters that can be markup in the middle of a line. A backslash makes them plain text.
var discordMarkup = regexp.MustCompile("[!-+/:-@[-`{-~]")

func discordEscape(s string) string { return discordMarkup.ReplaceAllString(s, `\$0`) }

// discordWithoutPreviews is the flag SUPPRESS_EMBEDS of a message.
const discordWithoutPreviews = 1 << 2

// discord returns a message for a webhook of Discord. It mentions no users, whatever the sentence contains.
func discord(sentence, link string) []byte {
	if link != "" {
		sentence += "\n<" + link + ">"
	}
	return encode(map[string]any{
		"content": sentence, "allowed_mentions": map[string]any{"parse": []string{}}, "flags": discordWithoutPreviews,
	})
}

func encode(message any) []byte {
	body, _ := json.Marshal(message) // no error: it consists of maps and texts
	return body
}
