package console

import (
	"html"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
)

// Saving the page of a key without a change keeps every field, of an admin and of a member, who sees fewer.
func TestKeyPageKeepsFields(t *testing.T) {
	h := newHouse(t)
	h.user(store0, "ada")
	for _, role := range []store.Role{store.RoleAdmin, store.RoleMember} {
		u, b := h.ofRole(role)
		fields := store.KeyFields{
			Name: "key of " + u.Name, Scope: "qwen*,llama3", ExpiresAt: new(h.now().Add(time.Hour).UTC()), Owner: u.ID,
			Note: "for <tests>", DefaultModel: "llama3", Priority: store.PriorityHigh,
			AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")},
		}
		for i, name := range limits.Names() {
			*fields.Limits.Field(name) = 1_234_567 + i
		}
		for field, value := range reflect.ValueOf(fields).Fields() {
			if value.IsZero() {
				t.Errorf("this test must set the field %s", field.Name)
			}
		}
		before, _, err := h.store.CreateKey(t.Context(), store0, fields)
		must(t, err)
		path := "/console/keys/" + before.ID
		b.goes(b.request(http.MethodPost, path, formOf(t, b.page(path), path).Encode()), path)
		after, _ := h.store.Key(store0, before.ID)
		if !reflect.DeepEqual(after.KeyFields, before.KeyFields) {
			t.Errorf("%s has saved\n%+v, want\n%+v", role, after.KeyFields, before.KeyFields)
		}
	}
}

// formOf returns what a browser posts from the form of a page that nobody has changed, which has inputs and selects.
func formOf(t *testing.T, page, action string) url.Values {
	t.Helper()
	_, form, _ := strings.Cut(page, `<form method="post" action="`+action+`">`)
	form, _, closed := strings.Cut(form, "</form>")
	if !closed {
		t.Fatalf("the page has no form to %s", action)
	}
	values := url.Values{}
	for _, m := range regexp.MustCompile(`<input id="\w+" name="(\w+)" value="([^"]*)"`).FindAllStringSubmatch(form, -1) {
		values.Set(m[1], html.UnescapeString(m[2]))
	}
	for _, m := range regexp.MustCompile(`(?s)<select id="\w+" name="(\w+)".*?</select>`).FindAllStringSubmatch(form, -1) {
		options := regexp.MustCompile(`<option( value="([^"]*)")?( selected)?>([^<]*)`).FindAllStringSubmatch(m[0], -1)
		selected := options[max(0, slices.IndexFunc(options, func(o []string) bool { return o[3] != "" }))]
		if values.Set(m[1], selected[2]); selected[1] == "" {
			values.Set(m[1], selected[4])
		}
	}
	return values
}
