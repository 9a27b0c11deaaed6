package manage

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/program"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/clients"
	"github.com/postern-dev/postern/connector/text"
)

// CreateSetup is the request for a set-up code: it names a client, and the fields of the key that the client will get.
type CreateSetup struct {
	Client string `json:"client" need:"required" flag:"-" help:"The client to set up: claude, codex, opencode, continue, cline or qwen"`
	Name   string `json:"name" need:"filled" help:"The beginning of the name of the key; machine and client follow (default: the owner, or setup)"`
	store.KeyFields
}

// CreatedSetup is the answer to [CreateSetup]. The code is in no other answer.
type CreatedSetup struct {
	ID        string                `json:"id"`
	Client    string                `json:"client"`
	Code      string                `json:"code"`
	ExpiresAt time.Time             `json:"expires_at"`
	Commands  downloads.UseCommands `json:"commands"`
	Hints     []string              `json:"hints,omitempty"` // sentences for the person who runs a command
}

// CreateSetup creates a set-up code, as [Service.CreateKey] creates a key.
func (s *Service) CreateSetup(ctx context.Context, edit func(*CreateSetup) error) (CreatedSetup, error) {
	return change(ctx, s, func(account string) (CreatedSetup, write, error) {
		c := CreateSetup{KeyFields: s.newKeyFields(ctx, account)}
		err := s.editKey(ctx, account, &c.KeyFields, func(*store.KeyFields) error { return edit(&c) })
		if err != nil {
			return CreatedSetup{}, write{}, err
		}
		if err := checkClient(c.Client); err != nil {
			return CreatedSetup{}, write{}, err
		}
		owner, _ := s.store.User(c.Owner)
		c.KeyFields.Name = cmp.Or(c.Name, owner.Name, "setup")
		setup, code, err := s.store.CreateSetup(ctx, account, c.KeyFields)
		folder, site := s.Downloads()
		return CreatedSetup{
			setup.ID, c.Client, code, setup.ExpiresAt, downloads.UseCommandsFor(site, folder.Archives(), c.Client, code),
			s.setupHints(ctx, c.Client, c.KeyFields),
		}, write{"setup.create", setup.ID, setup.Key.Name, []any{"client", c.Client, "scope", setup.Key.Scope}}, err
	})
}

// setupHints returns hints for a set-up: to trust the gateway's authority, and that the context window is a guess, or
// too small.
func (s *Service) setupHints(ctx context.Context, client string, k store.KeyFields) (hints []string) {
	if at := s.endpoint(); !at.Verified && at.Root == "" && strings.HasPrefix(at.URL, "https://") {
		hints = append(hints, "This gateway's certificate is not from a public authority. Add --ca root.crt to the line, "+
			"with the root certificate of its authority: "+program.Manual+"/private-ca.md")
	}
	if t, err := s.tradedModel(ctx, k); err == nil {
		hints = append(hints, t.Guess(), clients.Find(client).Warning(t.Values))
	}
	return slices.DeleteFunc(hints, func(hint string) bool { return hint == "" })
}

func checkClient(id string) error {
	if clients.Find(id).File == nil {
		return badRequest("client: %.40q is not one of %s", id, strings.Join(clients.WithFile(), ", "))
	}
	return nil
}

// UseSetup trades a set-up code for a key. The caller is not signed in: the code authorizes it.
func (s *Service) UseSetup(ctx context.Context, from string, t clients.Trade) (clients.Traded, error) {
	if err := checkClient(t.Client); err != nil {
		return clients.Traded{}, err
	}
	err := s.store.Refresh(ctx) // another gateway may just have created the code
	if err != nil {
		return clients.Traded{}, err
	}
	var code store.Setup
	wait := s.pairing.Try(from, func() (wrong bool) {
		if code, err = s.store.FindSetup(t.Code); err == nil {
			s.codes.Add(t.Code, struct{}{})
		}
		return err != nil && !s.codes.Contains(t.Code)
	})
	if wait > 0 {
		return clients.Traded{}, &signin.ThrottledError{RetryAfter: wait}
	}
	if err != nil {
		return clients.Traded{}, err
	}
	by := code.CreatedBy
	ctx = WithCaller(ctx, Caller{
		Account: code.Account, User: by.User, Name: by.Name, Token: by.Token, TokenName: by.TokenName, From: from,
	})
	traded, err := s.tradedModel(ctx, code.Key) // before the trade, which is final
	if err != nil {
		return clients.Traded{}, err
	}
	const maxPart = 40 // bytes of each part of the key's name
	machine := cmp.Or(text.Printable(t.Machine, maxPart), "machine")
	name := text.Printable(code.Key.Name, maxPart) + " " + machine + " " + t.Client
	traded, err = change(ctx, s, func(string) (clients.Traded, write, error) {
		k, secret, err := s.store.UseSetup(ctx, code, name, t.Client)
		// A key that the machine already has keeps its scope.
		used := store.KeyFields{Scope: k.Scope, Owner: k.Owner, Group: k.Group, DefaultModel: code.Key.DefaultModel}
		if model, modelErr := s.tradedModel(ctx, used); modelErr == nil {
			traded = model
		}
		traded.Key, traded.KeyName = secret, k.Name
		return traded, write{"setup.use", k.ID, k.Name, []any{"code", code.ID, "client", t.Client}}, err
	})
	if store.Committed(err) { // only this answer contains the secret
		err = nil
	}
	return traded, err
}

// tradedModel returns the answer to a trade, without the key: the chosen model, or the first one that the key may use.
func (s *Service) tradedModel(ctx context.Context, k store.KeyFields) (clients.Traded, error) {
	t := clients.Traded{Values: clients.Values{Base: s.endpoint().URL}}
	allowed, err := s.KeyModels(ctx, k)
	for _, d := range allowed {
		if d.Chats() && (t.Model == "" || d.Name == k.DefaultModel) {
			t.Model, t.Window, t.Judged = d.Name, d.ContextWindow, d.Options.Safeguards != ""
		}
	}
	if err == nil && t.Model == "" {
		err = faultf(store.ErrConflict, "the key of this code cannot use any published chat model; publish one in its "+
			"scope, or create a code with another scope")
	}
	return t, err
}
