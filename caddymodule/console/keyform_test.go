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
			Note: "for <tests>", Group: h.group(u), DefaultModel: "llama3", Priority: store.PriorityHigh,
			PersonFields: store.PersonFields{UserHeader: "X-Openwebui-User-Email"},
			AllowedIPs:   []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")},
		}
		for i, name := range limits.Names() {
			*fields.Limits.Field(name) = 1_234_567 + i
			if name != limits.TokensPerMonth {
				*fields.PersonLimits.Field(name) = 2_345_678 + i
			}
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

// group creates a group with a user, and returns its id.
func (h *house) group(u store.User) string {
	h.Helper()
	g, err := h.store.CreateGroup(h.Context(), store0,
		store.GroupFields{Name: "of " + u.Name, Scope: "*", Members: []string{u.ID}})
	must(h, err)
	return g.ID
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

// An error of a form names the field by its label. The field is marked and focused, and keeps the input.
func TestFormErrors(t *testing.T) {
	g := newGateway(t)
	gpu := g.connector("gpu-box")
	g.deployment("small", gpu)
	g.post("/console/keys", "name", "laptop", "scope", "*")
	key, model, long := []string{"name", "ci", "scope", "*"}, []string{"name", "m", "connector", gpu.ID},
		strings.Repeat("x", 320)
	for _, c := range []struct {
		path         string
		form         []string
		field, value string
		fault        string
	}{
		{"keys", key, "name", "laptop", "Name: Another key has the name &#34;laptop&#34;: choose another name, or revoke"},
		{"keys", key, "name", long, "Name: The name of the key is too long: 320 bytes, of at most 128."},
		{"keys", key, "scope", "a b", "Models it may use: The pattern"},
		{"keys", key, "scope", "", "Models it may use: Enter the models"},
		{"keys", key, "note", strings.Repeat("x", 501), "Note: The note of the key is too long"},
		{"keys", key, "networks", "home", "Allowed IP addresses: &#34;home&#34; is not an IP address"},
		{"keys", key, "default_model", "a b", "Default model: The deployment name"},
		{
			"keys", append(key, "requests_per_minute", ""), "tokens_per_day", "many",
			"Tokens per day: It must be a whole number",
		},
		{"models", model, "name", "a b", "Public name: The deployment name"},
		{"models", model, "connector", "", "Connector: Choose the connector of the model."},
		{"models", model, "max_concurrency", "-1", "Concurrent requests: It must be a whole number"},
		{"models", model, "also_as", "a!", "Also known as: The pattern"},
		{"models", model, "fallback", "m", "The deployment"},
		{"models", model, "option.context_window", "40k", "Context window: Option"},
		{"settings/tokens", []string{"right", "read", "days", "7"}, "name", " x", "Name: The name of the token"},
		{"settings/tokens", []string{"name", "x", "right", "read"}, "days", "0x", "Choose when"},
	} {
		form := slices.Clone(c.form)
		if i := slices.Index(form, c.field); i >= 0 {
			form[i+1] = c.value
		} else {
			form = append(form, c.field, c.value)
		}
		page := g.post("/console/"+c.path, form...).Body.String()
		has(t, page, `id="fault">`+c.fault, `name="`+c.field+`" aria-invalid="true" autofocus`)
		if !strings.Contains(page, `name="`+c.field+`" aria-invalid="true" autofocus aria-describedby="fault"`) {
			has(t, page, `aria-describedby="fault `)
		}
		if strings.Count(page, "autofocus") != 1 || strings.Count(page, "aria-invalid") != 1 {
			t.Errorf("%s of %s: several fields are marked", c.field, c.path)
		}
		lacks(t, page, "Creating the")
		if c.value != "" && c.field != "fallback" && c.field != "days" && c.field != "option.context_window" {
			has(t, mainOf(page), c.value)
		}
	}
}
