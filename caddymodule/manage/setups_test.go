package manage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/clients"
	"github.com/postern-dev/postern/tests/storetest"
)

const noSetup = "the code is wrong, was already used, or has expired"

// trade trades a code for a key for Claude Code, as a machine.
func (g *gateway) trade(code, machine string) (clients.Traded, error) {
	return g.service.UseSetup(context.Background(), "192.0.2.9",
		clients.Trade{Code: code, Client: "claude", Machine: machine})
}

func (g *gateway) inRole(name string, role store.Role) manage.Caller {
	g.t.Helper()
	caller := g.user(store.DefaultAccount, name)
	must(g.t, errOf(g.store.SetUserRole(g.t.Context(), store.DefaultAccount, name, role)))
	return caller
}

func TestSetup(t *testing.T) {
	g := newGateway(t)
	ann := g.user(store.DefaultAccount, "ann")
	con := g.connector(store.DefaultAccount, "box", nil)
	for _, name := range []string{"llama3", "qwen3:8b", "qwen3:4b"} {
		g.deployment(name, con, "", "")
	}
	must(t, errOf(g.store.SetDeployment(t.Context(), store.Deployment{
		Account: store.DefaultAccount, Name: "qwen-embed", Connectors: []string{con.info.Connector},
		Kind: store.EmbeddingsModel,
	})))
	made := wantAs[manage.CreatedSetup](g, ann, 201, "POST", "/setups",
		`{"client":"claude","scope":"qwen*","default_model":"qwen3:8b","limits":{"requests_per_minute":7}}`)
	if left := time.Until(made.ExpiresAt); left > 15*time.Minute || left < 14*time.Minute || made.Client != "claude" ||
		made.Commands.Connector != "connector use --gateway https://gw.example.com claude "+made.Code {
		t.Errorf("created %+v", made)
	}
	if len(made.Hints) != 2 || !strings.Contains(made.Hints[0], "Add --ca root.crt to the line") ||
		!strings.Contains(made.Hints[1], "65536 is a guess") {
		t.Errorf("hints %q", made.Hints)
	}
	traded, err := g.trade(strings.ToLower(made.Code), "Ann's \x1b[31mbox ")
	must(t, err)
	k := wantAs[manage.Key](g, ann, 200, "GET", "/keys/"+"ann%20Ann's%20%5B31mbox%20claude", "")
	if live, ok := g.store.FindKey(traded.Key); !ok || live.Key().ID != k.ID || k.OwnerName != "ann" ||
		k.Scope != "qwen*" || k.Limits.RequestsPerMinute != 7 || k.CreatedBy.Name != "ann" ||
		k.Client != "claude" || k.Name != traded.KeyName {
		t.Errorf("the key is %+v", k)
	}
	if traded.Base != "https://gw.example.com" || traded.Model != "qwen3:8b" {
		t.Errorf("the answer is %+v", traded)
	}
	_, err = g.trade(made.Code, "box")
	wantFault(t, err, store.ErrNotFound, noSetup)

	entry := wantAs[[]store.Operation](g, ann, 200, "GET", "/audit", "")[0]
	if entry.Kind != "setup.use" || entry.Record != k.ID || entry.By != "ann" || entry.User != ann.User ||
		entry.From != "192.0.2.9" || entry.Details["code"] != made.ID || entry.Details["client"] != "claude" {
		t.Errorf("the audit log has %+v", entry)
	}
	if log := g.log.String(); strings.Contains(log, made.Code) || strings.Contains(log, traded.Key) {
		t.Error("the log has the code or the key")
	}

	// The next code replaces the secret of the key, which keeps its scope and limits. The chosen model is not in it.
	made = wantAs[manage.CreatedSetup](g, ann, 201, "POST", "/setups",
		`{"client":"claude","scope":"llama*","default_model":"llama3"}`)
	if traded, err = g.trade(made.Code, "Ann's \x1b[31mbox "); err != nil || traded.Model != "qwen3:4b" {
		t.Errorf("traded %+v, %v", traded, err)
	}
	live, ok := g.store.FindKey(traded.Key)
	if keys := wantAs[[]manage.Key](g, ann, 200, "GET", "/keys", ""); !ok || live.Key().ID != k.ID || len(keys) != 1 ||
		keys[0].Scope != "qwen*" || keys[0].Limits.RequestsPerMinute != 7 {
		t.Errorf("the keys are %+v", keys)
	}
}

func wantFault(t *testing.T, err, kind error, text string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.HasPrefix(err.Error(), text) {
		t.Errorf("error %v, want %q", err, text)
	}
}

// chatModel publishes a model.
func (g *gateway) chatModel() {
	g.t.Helper()
	g.deployment("llama3", g.connector(store.DefaultAccount, "gpu", nil), "", "")
}

// Without a machine and an owner, a trade works, too; without a model, it is refused and does not use up the code.
func TestSetupOfOperator(t *testing.T) {
	g := newGateway(t)
	made := want[manage.CreatedSetup](g, 201, "POST", "/setups", `{"client":"codex"}`)
	_, err := g.trade(made.Code, "")
	wantFault(t, err, store.ErrConflict, "the key of this code cannot use any published chat model")
	g.chatModel()
	traded, err := g.trade(made.Code, "")
	if err != nil || traded.KeyName != "setup machine claude" || traded.Model != "llama3" {
		t.Errorf("traded %+v, %v", traded, err)
	}
	made = want[manage.CreatedSetup](g, 201, "POST", "/setups", `{"client":"codex","name":"ci"}`)
	if traded, err = g.trade(made.Code, strings.Repeat("ä", 500)); err != nil || traded.KeyName !=
		"ci "+strings.Repeat("ä", 20)+" claude" {
		t.Errorf("traded %+v, %v", traded, err)
	}
}

// Members create codes for themselves, and the key has the limits that were in force for them.
func TestSetupRoles(t *testing.T) {
	g := newGateway(t)
	g.chatModel()
	g.user(store.DefaultAccount, "ann")
	mia, viv := g.inRole("mia", store.RoleMember), g.inRole("viv", store.RoleViewer)
	made := wantAs[manage.CreatedSetup](g, mia, 201, "POST", "/setups", `{"client":"claude"}`)
	if traded, err := g.trade(made.Code, "box"); err != nil || traded.KeyName != "mia box claude" {
		t.Errorf("traded %+v, %v", traded, err)
	}
	for _, body := range []string{
		`{"client":"claude","owner":"ann"}`, `{"client":"claude","limits":{"requests_per_day":9}}`,
	} {
		wantAs[map[string]string](g, mia, 403, "POST", "/setups", body)
	}
	wantAs[map[string]string](g, viv, 403, "POST", "/setups", `{"client":"claude"}`)
	wantAs[map[string]string](g, asToken(mia, store.RightRead), 403, "POST", "/setups", `{"client":"claude"}`)
	for body, text := range map[string]string{
		`{}`:                               `field "client" is required`,
		`{"client":"none"}`:                `"none" is not one of claude, `,
		`{"client":"curl"}`:                `"curl" is not one of`, // it has no file
		`{"client":"claude","name":""}`:    `field "name" is empty`,
		`{"client":"claude","scope":"a,"}`: "pattern is empty",
		`{"client":"claude","model":"x"}`:  `unknown field "model"`,
	} {
		if got := wantAs[map[string]string](g, mia, 400, "POST", "/setups", body); !strings.Contains(got["error"], text) {
			t.Errorf("%s: %v", body, got)
		}
	}
}

// A code that is sent again was not guessed: others at the address may go on.
func TestUsedCodeIsNoGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		g.chatModel()
		made := want[manage.CreatedSetup](g, 201, "POST", "/setups", `{"client":"claude"}`)
		var group sync.WaitGroup
		var traded atomic.Int32
		for range 40 {
			group.Go(func() {
				_, err := g.trade(made.Code, "box")
				if err == nil {
					traded.Add(1)
				} else if !errors.Is(err, store.ErrNotFound) {
					t.Error(err)
				}
			})
		}
		if group.Wait(); traded.Load() != 1 {
			t.Errorf("%d trades", traded.Load())
		}
		made = want[manage.CreatedSetup](g, 201, "POST", "/setups", `{"client":"claude"}`)
		if _, err := g.trade(made.Code, "desk"); err != nil {
			t.Error(err)
		}
		for range 5 {
			_, err := g.trade("USE-0000-0000", "box")
			wantFault(t, err, store.ErrNotFound, noSetup)
		}
		if _, err := g.trade(made.Code, "desk"); !errors.As(err, new(*signin.ThrottledError)) {
			t.Errorf("after five wrong codes: %v", err)
		}
	})
}

// A refused trade does not use up the code: of an unknown client, and of a name that another key has.
func TestRefusedTrade(t *testing.T) {
	g := newGateway(t)
	g.chatModel()
	made := want[manage.CreatedSetup](g, 201, "POST", "/setups", `{"client":"claude","name":"ci"}`)
	_, err := g.service.UseSetup(t.Context(), "192.0.2.9", clients.Trade{Code: made.Code, Client: "none"})
	wantFault(t, err, store.ErrInvalid, `client: "none" is not one of claude, `)
	want[map[string]any](g, 201, "POST", "/keys", `{"name":"ci box claude"}`)
	_, err = g.trade(made.Code, "box")
	wantFault(t, err, store.ErrExists, "using the code: another key")
	if _, err := g.trade(made.Code, "desk"); err != nil {
		t.Error(err)
	}
}

// The help of the API and of the command line names each client that a code can set up.
func TestSetupHelp(t *testing.T) {
	field, _ := reflect.TypeFor[manage.CreateSetup]().FieldByName("Client")
	page, err := os.ReadFile("../../docs/cli.md")
	must(t, err)
	known := clients.WithFile()
	last := len(known) - 1
	list := strings.Join(known[:last], ", ") + " or " + known[last]
	if help := field.Tag.Get("help"); !strings.HasSuffix(help, ": "+list) {
		t.Errorf("the help is %q, without %s", help, list)
	}
	if !strings.Contains(string(page), "Creates a code that sets up "+list) {
		t.Errorf("docs/cli.md does not have %q", list)
	}
}

// Wrong codes of both kinds count together.
func TestGuessedSetups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t)
		g.chatModel()
		from := func(address, code string) error {
			_, err := g.service.UseSetup(context.Background(), address, clients.Trade{Code: code, Client: "claude"})
			return err
		}
		right := want[manage.CreatedSetup](g, 201, "POST", "/setups", `{"client":"claude"}`)
		const guesser = "198.51.100.7"
		refused := 0
		for i := range 10 {
			err := from(guesser, fmt.Sprintf("USE-0000-000%d", i))
			if throttled := (*signin.ThrottledError)(nil); errors.As(err, &throttled) && throttled.RetryAfter > 0 {
				refused++
			} else if !errors.Is(err, store.ErrNotFound) {
				t.Error(err)
			}
		}
		if refused != 5 {
			t.Errorf("%d of 10 wrong codes were refused unchecked", refused)
		}
		if throttled := (*signin.ThrottledError)(nil); !errors.As(from(guesser, right.Code), &throttled) {
			t.Error("a right code is checked after too many wrong ones")
		}
		if _, expected := g.desk.Expects(guesser, func([]byte) bool { return true }); expected {
			t.Error("a pairing code is checked after too many wrong set-up codes")
		}
		if err := from("203.0.113.5", right.Code); err != nil {
			t.Errorf("from another address: %v", err)
		}
	})
}

// Codes that cannot be checked count as wrong.
func TestGuessedSetupsWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kv := storetest.OpenBolt(t, filepath.Join(t.TempDir(), "gateway.db"))
		st, err := store.New(storetest.Share(kv), store.Options{})
		must(t, err)
		t.Cleanup(func() { _ = st.Close() })
		g := newGatewayOn(t, st, nil)
		must(t, kv.Close())
		for i := range 6 {
			_, err := g.trade("USE-0000-0000", "box")
			if throttled := (*signin.ThrottledError)(nil); errors.As(err, &throttled) != (i == 5) {
				t.Errorf("trade %d: %v", i, err)
			}
		}
	})
}
