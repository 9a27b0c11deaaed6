package manage_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// The status names each connector without the next pin, with the reason.
func TestIdentityMissing(t *testing.T) {
	g := newGateway(t)
	ctx := asOperator(t.Context())
	has := g.connector("default", "has it", nil)
	g.connector("default", "old", nil)
	waiting := g.connector("default", "waiting", nil)
	failed := g.connector("default", "failed", nil)
	for i, info := range g.tunnels.infos {
		g.tunnels.infos[i].KnowsPins = info.Connector == waiting.info.Connector || info.Connector == failed.info.Connector
	}
	if _, _, err := g.store.CreateConnector(ctx, "default", "offline"); err != nil {
		t.Fatal(err)
	}
	if status, err := g.service.Identity(ctx); err != nil || len(status.Missing) > 0 || status.Missing == nil ||
		status.SwitchAt != nil {
		t.Errorf("without a rotation: %+v, %v", status, err)
	}
	before := time.Now()
	if _, err := g.service.RotateIdentity(ctx, manage.RotateIdentity{Grace: "48h"}); err != nil {
		t.Fatal(err)
	}
	g.endpoint.NextPin = "next"
	if err := g.store.ConfirmPin(ctx, has.info.Connector, "next"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.store.BeginRotation(ctx, "default", failed.info.Connector); err != nil {
		t.Fatal(err)
	}
	if err := g.store.FailRotation(ctx, failed.info.Connector, "read-only"); err != nil {
		t.Fatal(err)
	}
	status, err := g.service.Identity(ctx)
	if err != nil || status.Connectors != 5 || status.SwitchAt == nil ||
		status.SwitchAt.Sub(before).Round(time.Hour) != 48*time.Hour {
		t.Fatalf("%+v, %v", status, err)
	}
	// Users see when the pin changes, but not the connectors of others.
	user := manage.WithCaller(t.Context(), g.user("default", "anna"))
	if st, err := g.service.Status(user); err != nil || st.Listener.NextPin != "next" || st.Listener.SwitchAt == nil ||
		!st.Listener.SwitchAt.Equal(*status.SwitchAt) {
		t.Errorf("%+v, %v", st.Listener, err)
	}
	got := map[string]string{}
	for _, m := range status.Missing {
		got[m.Name] = m.Reason
	}
	want := map[string]string{
		"old": "its program is too old; upgrade it", "waiting": "it has not answered yet",
		"failed": "read-only", "offline": "it is offline",
	}
	for name, reason := range want {
		if got[name] != reason || len(got) != len(want) {
			t.Errorf("%s: %q of %v", name, got[name], got)
		}
	}
}

// Rotations are begun once, canceled and ended; a wrong grace is refused.
func TestRotateIdentity(t *testing.T) {
	g := newGateway(t)
	ctx := asOperator(t.Context())
	identity := func() store.Identity {
		i, err := g.store.Identity(ctx, link.NewIdentity)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	for _, grace := range []string{"30d", "0s", "59s", "-1h", "9000h", "x"} {
		if _, err := g.service.RotateIdentity(ctx, manage.RotateIdentity{Grace: grace}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%q: %v", grace, err)
		}
	}
	if _, err := g.service.CancelIdentity(ctx); !errors.Is(err, store.ErrConflict) {
		t.Errorf("cancel without a rotation: %v", err)
	}
	first := identity()
	if _, err := g.service.RotateIdentity(ctx, manage.RotateIdentity{}); err != nil {
		t.Fatal(err)
	}
	pending := identity()
	if string(pending.Key) != string(first.Key) || len(pending.Next) == 0 ||
		pending.SwitchAt.Sub(pending.Since) != 720*time.Hour {
		t.Errorf("pending: %v to %v", pending.Since, pending.SwitchAt)
	}
	if _, err := g.service.RotateIdentity(ctx, manage.RotateIdentity{}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a second rotation: %v", err)
	}
	if _, err := g.service.RotateIdentity(ctx, manage.RotateIdentity{Now: true}); err != nil {
		t.Fatal(err)
	}
	if now := identity(); string(now.Next) != string(pending.Next) || now.SwitchAt.After(time.Now()) {
		t.Errorf("with --now the next key is another, or the switch is at %v", now.SwitchAt)
	}
	if _, err := g.service.CancelIdentity(ctx); err != nil || identity().Next != nil {
		t.Errorf("cancel: %v", err)
	}
	// It is canceled while --now waits for the connectors.
	g.identity = func() error {
		_, err := g.store.ChangeIdentity(ctx, func(i *store.Identity) error {
			*i = store.Identity{Key: i.Key}
			return nil
		})
		return err
	}
	if _, err := g.service.RotateIdentity(ctx, manage.RotateIdentity{Now: true}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("a canceled rotation with --now: %v", err)
	}
	g.identity = func() error { return errors.New("no listener") }
	if w := g.do(http.MethodPost, "/identity/rotate", `{}`); w.Code != http.StatusInternalServerError {
		t.Errorf("failing to apply: %d %s", w.Code, w.Body)
	}
}
