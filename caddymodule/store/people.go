package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/textproto"
	"net/url"
	"regexp"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/postern-dev/postern/caddymodule/limits"
)

const (
	// OtherPeople stands for people without a name, and for those of a key beyond MaxPeople on a day.
	OtherPeople = "others"
	MaxPeople   = 1000
	// MaxPerson bounds the name of a person, in bytes.
	MaxPerson = 128
	// KeepPeople is how many days the names of people are kept.
	KeepPeople = 62

	maxPeopleKeys = 16 // of an account
	maxForgotten  = 1000
)

// PersonFields are the fields of a key that name the person behind a request.
type PersonFields struct {
	// UserHeader is in canonical form; "": none.
	UserHeader   string             `json:"user_header,omitempty" help:"The request header that names the person behind the key, such as X-OpenWebUI-User-Email; \"\" for none"`
	UserField    bool               `json:"user_field,omitempty" format:"true" help:"The body names the person behind the key: in user, or in metadata.user_id of messages"`
	PersonLimits limits.UsageLimits `json:"person_limits,omitzero" flag:"person-" flaghelp:"Each person: " help:"Limits for each person behind it; 0 is no limit"`
}

// NamesPeople reports whether requests with the key name the people behind it.
func (f PersonFields) NamesPeople() bool { return f.UserHeader != "" || f.UserField }

// usedHeaders have another meaning.
var usedHeaders = regexp.MustCompile(`^(Accept|Access-Control-|Anthropic-|(X-)?Api-Key$|Authorization$|Connection$|` +
	`Content-|Cookie$|Expect$|Forwarded$|Host$|Keep-Alive$|Origin$|Postern-|Proxy-|Te$|Trace(parent|state)$|Trailer$|` +
	`Transfer-Encoding$|Upgrade$|X-Forwarded-|X-Session-Id$)`)

func (f *PersonFields) normalize() error {
	f.UserHeader = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(f.UserHeader))
	switch l := f.PersonLimits; {
	case f.UserHeader != "" && (!httpguts.ValidHeaderFieldName(f.UserHeader) || len(f.UserHeader) > MaxPerson):
		return InField("user_header", Errorf(ErrInvalid, "user_header %.40q is not the name of a header, such as "+
			"X-OpenWebUI-User-Email", f.UserHeader))
	case usedHeaders.MatchString(f.UserHeader):
		return InField("user_header", Errorf(ErrInvalid, "the header %s has another meaning: choose one that only names "+
			"the person", f.UserHeader))
	case f.UserHeader != "" && f.UserField:
		return InField("user_header", Errorf(ErrInvalid, "a key has either user_header or user_field, not both"))
	case l.TokensPerMonth != 0:
		return Errorf(ErrInvalid, "a person has no limit of tokens_per_month: set tokens_per_day")
	case l != limits.UsageLimits{} && !f.NamesPeople():
		return Errorf(ErrInvalid, "limits for each person need user_header or user_field, which name the person")
	}
	return checkUsageLimits(f.PersonLimits)
}

// checkPeople fails if a key names people, and too many other keys of the account do. Concurrent writes may exceed
// the limit slightly.
func checkPeople(t *tx, r *keyRecord) error {
	n := 0
	for other := range keyKind.owned(t.s.view.Load(), r.Account) {
		if other.NamesPeople() && other.RevokedAt == nil && other.ID != r.ID {
			n++
		}
	}
	if r.NamesPeople() && n >= maxPeopleKeys {
		return Errorf(ErrLimit, "%d keys of the account name the people behind them, which is the maximum: remove "+
			"user_header or user_field from one of them", n)
	}
	return nil
}

// NamesPeople returns the header that names the person behind a request with the key, or whether the body does.
func (k *LiveKey) NamesPeople() (header string, inBody bool) {
	r := k.record.Load()
	return r.UserHeader, r.UserField
}

// ForgetPerson makes a key, given by id or name, forget a person: requests until the end of the day. When it returns
// without an error, no edge returns the name for them; the rows are deleted later.
func (s *Store) ForgetPerson(ctx context.Context, account, idOrName, person string, checks ...KeyCheck) (Key, error) {
	if person == "" || len(person) > MaxPerson || person == OtherPeople {
		return Key{}, InField("person", Errorf(ErrInvalid, "a name of 1 to %d bytes is necessary, which is not %q", MaxPerson,
			OtherPeople))
	}
	return update(ctx, s, "forgetting the person", func(t *tx) (Key, error) {
		r, err := findKey(t, account, idOrName, checks...)
		if err != nil {
			return Key{}, err
		}
		forgotten := map[string]string{forgottenHash(r.ID, person): s.now().UTC().Format(time.DateOnly)}
		for hash, day := range r.Forgotten {
			if day > s.oldestPeople() {
				forgotten[hash] = max(day, forgotten[hash])
			}
		}
		if r.Forgotten = forgotten; len(forgotten) > maxForgotten {
			return Key{}, Errorf(ErrLimit, "the key has forgotten %d people in %d days, which is the maximum: remove the key, "+
				"which forgets all", maxForgotten, KeepPeople)
		}
		t.confirmed()
		keyKind.save(t, r)
		return r.Key, nil
	})
}

// forgottenHash returns what a record keeps of a name that is forgotten.
func forgottenHash(key, person string) string {
	hash := sha256.Sum256([]byte(key + "/" + person))
	return hex.EncodeToString(hash[:])
}

// oldestPeople returns the last day whose people are no longer kept.
func (s *Store) oldestPeople() string {
	return s.now().UTC().AddDate(0, 0, -KeepPeople).Format(time.DateOnly)
}

// KeepsPerson reports whether the name of a person behind a key is kept for requests of a day.
func (s *Store) KeepsPerson(account, key, person, day string) bool {
	r, ok := keyKind.byID(s.view.Load(), key)
	return ok && r.Account == account && day > s.oldestPeople() &&
		(len(r.Forgotten) == 0 || r.Forgotten[forgottenHash(key, person)] < day)
}

// EachPerson is [Store.EachUsage] for a person behind a key, or for all if person is "".
func (s *Store) EachPerson(ctx context.Context, account, key, person, from, to string, f func(UsageRow) error) error {
	if person != "" {
		key += "/" + url.PathEscape(person)
	}
	return s.eachRow(ctx, usageSpans(dirPeople+account+"/", key, from, to), func(r UsageRow) error {
		if !s.keeps(&r) {
			return nil
		}
		return f(r)
	})
}

// dropPeople deletes the rows of people of an account that are not kept. Other gateways drop theirs in PublishUsage.
func (s *Store) dropPeople(ctx context.Context, account string) error {
	if s.view.Load().unreadable.size > 0 {
		return nil // an unreadable key would seem to be removed
	}
	var paths []string
	_, err := s.shared.Each(ctx, Prefix(dirPeople+account+"/"), func(item Item) error {
		if r, err := rowOf(item.Key); err == nil && !s.keeps(&r) {
			paths = append(paths, item.Key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.deleteAll(ctx, paths, nil)
}
