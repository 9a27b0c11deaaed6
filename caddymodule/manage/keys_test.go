package manage_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// A change of a key keeps the fields that it does not name.
func TestKeyLife(t *testing.T) {
	g := newGateway(t)
	ann := g.user(store.DefaultAccount, "ann")
	bob := g.user(store.DefaultAccount, "bob")
	created := wantAs[manage.CreatedKey](g, ann, 201, "POST", "/keys",
		`{"name":"laptop","scope":"qwen*","expires_at":"2099-01-02T03:04:05Z","note":"of the desk",`+
			`"allowed_ips":["10.1.2.3/8","192.0.2.1"]}`)
	get := func(name string) manage.Key { return wantAs[manage.Key](g, ann, 200, "GET", "/keys/"+name, "") }
	k := get("laptop")
	if k.State != store.KeyValid || k.Owner != ann.User || k.OwnerName != "ann" || k.Note != "of the desk" ||
		len(k.AllowedIPs) != 2 ||
		k.AllowedIPs[0].String() != "10.0.0.0/8" || k.ExpiresAt.Year() != 2099 ||
		k.Shown != created.Key[:11]+"…"+created.Key[46:] {
		t.Fatalf("created %+v", k)
	}
	edited := wantAs[manage.Key](g, ann, 200, "PATCH", "/keys/laptop", `{"owner":"bob"}`)
	if edited.OwnerName != "bob" || edited.Scope != "qwen*" || edited.Note != k.Note ||
		!edited.ExpiresAt.Equal(*k.ExpiresAt) || !slices.Equal(edited.AllowedIPs, k.AllowedIPs) {
		t.Errorf("edited %+v", edited)
	}
	edited = wantAs[manage.Key](g, ann, 200, "PATCH", "/keys/laptop",
		`{"name":"desk","scope":"*","expires_at":null,"owner":"","note":"","allowed_ips":[]}`)
	if edited.Name != "desk" || edited.Scope != "*" || edited.ExpiresAt != nil || edited.Owner != "" ||
		edited.Note != "" || edited.AllowedIPs != nil ||
		edited.ID != k.ID || edited.ChangedBy.Name != "ann" {
		t.Errorf("edited %+v", edited)
	}
	if k := wantAs[manage.Key](g, ann, 200, "POST", "/keys/desk/disable", `{}`); k.State != store.KeyDisabled {
		t.Errorf("disabled %+v", k)
	}
	if k := wantAs[manage.Key](g, bob, 200, "POST", "/keys/desk/enable", `{}`); k.State != store.KeyValid ||
		k.ChangedBy.Name != "bob" {
		t.Errorf("enabled %+v", k)
	}
	rotated := wantAs[manage.CreatedKey](g, bob, 200, "POST", "/keys/desk/rotate", `{}`)
	if left := time.Until(rotated.Previous.Until); rotated.ID != k.ID || rotated.Key == created.Key ||
		rotated.Previous.Shown != k.Shown ||
		left > 24*time.Hour || left < 23*time.Hour {
		t.Errorf("rotated %+v", rotated)
	}
	if k := get("desk"); k.Previous == nil || k.RotatedBy.Name != "bob" {
		t.Errorf("rotated %+v", k)
	}
	if again := wantAs[manage.CreatedKey](g, bob, 200, "POST", "/keys/desk/rotate",
		`{"grace":"0s"}`); again.Previous != nil {
		t.Errorf("rotated %+v", again)
	}
	for _, secret := range []string{created.Key, rotated.Key} {
		if _, ok := g.store.FindKey(secret); ok {
			t.Error("a secret before the last rotation is known")
		}
	}
	for _, tt := range []struct{ method, path, body, part string }{
		{"PATCH", "/keys/desk", `{"owner":"eve"}`, `user "eve" not found`},
		{"PATCH", "/keys/desk", `{"allowed_ips":["all"]}`, "is not an IP address or a network"},
		{"PATCH", "/keys/desk", `{"expires_at":"2001-01-01T00:00:00Z"}`, "is in the past"},
		{"PATCH", "/keys/desk", `{"expires_at":"tomorrow"}`, "or null for never"},
		{"PATCH", "/keys/desk", `{"priority":"urgent"}`, `is "urgent", but must be high, normal or low`},
		{"PATCH", "/keys/desk", `{"priority":null}`, `"priority" must be a string`},
		{"PATCH", "/keys/desk", `{"hash":"x"}`, "unknown field"},
		{"POST", "/keys/desk/rotate", `{"grace":"721h"}`, "0s to 720h"},
		{"POST", "/keys/desk/rotate", `{"grace":"30d"}`, "0s to 720h"},
	} {
		w := g.doAs(ann, tt.method, tt.path, tt.body)
		if w.Code != 400 && w.Code != 404 {
			t.Errorf("%s %s: %d %s", tt.path, tt.body, w.Code, w.Body)
		}
		wantError(t, w, tt.part)
	}
}

// New keys get the defaults of their account, unless they are created with other values.
func TestKeyDefaults(t *testing.T) {
	g := newGateway(t)
	a := want[store.Account](g, 200, "PATCH", "/accounts/default",
		`{"key_scope":"qwen*","key_expires_days":30,"key_allowed_ips":["10.0.0.0/8"]}`)
	if a.KeyDefaults.ExpiresDays != 30 {
		t.Errorf("set %+v", a)
	}
	if a = want[store.Account](g, 200, "PATCH", "/accounts/default", `{"max_keys":7}`); a.KeyDefaults.Scope != "qwen*" ||
		len(a.KeyDefaults.AllowedIPs) != 1 {
		t.Errorf("defaults that are not named: %+v", a)
	}
	ann := g.user(store.DefaultAccount, "ann")
	wantAs[manage.CreatedKey](g, ann, 201, "POST", "/keys", `{"name":"defaults"}`)
	wantAs[manage.CreatedKey](g, ann, 201, "POST", "/keys",
		`{"name":"others","scope":"*","expires_at":null,"allowed_ips":[]}`)
	k := wantAs[manage.Key](g, ann, 200, "GET", "/keys/defaults", "")
	if left := time.Until(*k.ExpiresAt); k.Scope != "qwen*" || left > 30*24*time.Hour || left < 29*24*time.Hour ||
		len(k.AllowedIPs) != 1 {
		t.Errorf("with defaults: %+v", k)
	}
	if k := wantAs[manage.Key](g, ann, 200, "GET", "/keys/others", ""); k.Scope != "*" || k.ExpiresAt != nil ||
		k.AllowedIPs != nil {
		t.Errorf("with other values: %+v", k)
	}
	for body, part := range map[string]string{
		`{"key_expires_days":-1}`:      "must be 1 to 3660",
		`{"key_scope":"a b"}`:          "contains ' '",
		`{"key_allowed_ips":["here"]}`: "is not an IP address or a network",
	} {
		wantError(t, g.do("PATCH", "/accounts/default", body), part)
	}
}

// The answer to a rotation has the only copy of the new secret, even if an edge has not
// confirmed that the old one has ended.
func TestRotationIsAnsweredUnconfirmed(t *testing.T) {
	g, edge, _ := newEdge(t)
	ann := g.user(store.DefaultAccount, "ann")
	created := wantAs[manage.CreatedKey](g, ann, 201, "POST", "/keys", `{"name":"laptop"}`)
	edge.Leave(store.PendingEdge{Edge: "c"})
	rotated := wantAs[manage.CreatedKey](g, ann, 200, "POST", "/keys/laptop/rotate", `{"grace":"0s"}`)
	if _, ok := g.store.FindKey(rotated.Key); !ok || rotated.Key == created.Key || rotated.Unconfirmed == nil ||
		len(rotated.Unconfirmed.Pending) != 1 {
		t.Errorf("rotated %+v", rotated)
	}
}

// A priority is one of three, and the normal one is absent from records and answers.
func TestKeyPriority(t *testing.T) {
	g := newGateway(t)
	ann := g.user(store.DefaultAccount, "ann")
	live, _ := g.store.FindKey(wantAs[manage.CreatedKey](g, ann, 201, "POST", "/keys", `{"name":"laptop"}`).Key)
	if live.Priority() != store.PriorityNormal {
		t.Errorf("a new key has the priority %q", live.Priority())
	}
	for _, p := range append(store.Priorities(), "") {
		answer := g.doAs(ann, "PATCH", "/keys/laptop", `{"priority":"`+string(p)+`"}`)
		want := cmp.Or(p, store.PriorityNormal)
		if answer.Code != 200 || live.Priority() != want ||
			strings.Contains(answer.Body.String(), `"priority"`) != (want != store.PriorityNormal) {
			t.Errorf("%q: %q, %d %s", p, live.Priority(), answer.Code, answer.Body)
		}
	}
}
