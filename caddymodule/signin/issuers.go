package signin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net/netip"
	"net/url"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/signin/oidc"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	// Clients at an address may answer answersAtOnce flows at once, and then one in each answerPause: an office may share
	// an address, and each answer is a write, whether or not it signs in.
	answersAtOnce = 60
	answerPause   = time.Second
)

// answers limits the answers of issuers by the address of the client.
type answers = lru.Cache[netip.Prefix, *rate.Limiter]

// BeginIssuer begins a flow at an issuer. It returns the address for the browser, and the flow, sealed for it.
func (s *Service) BeginIssuer(i *oidc.Issuer, f oidc.Flow, address string) (to, state, sealed string, err error) {
	if err := s.guard.checkAddress(fair.Parse(address), s.now()); err != nil {
		return "", "", "", err
	}
	f.Began = s.now()
	if to, err = i.Begin(&f); err != nil {
		return "", "", "", s.issuerFailure(address, i, err)
	}
	sealed, err = s.sealer.seal("issuer", f)
	return to, f.State, sealed, err
}

// Answered is the end of a flow.
type Answered struct {
	oidc.Flow
	oidc.Person
	Signed    Signed // unless the purpose is to link
	KeptAdmin bool   // see [store.Store.SignInByIssuer]
	Used      bool   // the flow cannot be answered again
}

// FinishIssuer ends a flow with the query of the issuer's redirect, and signs the person in unless the purpose is to
// link. current is the session of the browser. It returns an *[oidc.Failure], ErrBusy, a *ThrottledError, or an error
// of the store.
func (s *Service) FinishIssuer(
	ctx context.Context, i *oidc.Issuer, a Attempt, current store.Session, sealed string, query url.Values,
) (Answered, error) {
	client := fair.Parse(a.Address)
	if err := s.guard.checkAddress(client, s.now()); err != nil {
		return Answered{}, err
	}
	var o Answered
	if err := s.sealer.open("issuer", sealed, &o.Flow); err != nil {
		return o, s.issuerFailure(a.Address, i, i.Retry("no flow of this browser"))
	}
	if o.Session != "" && o.Session != current.ID {
		return o, s.issuerFailure(a.Address, i, i.Retry("the session has ended"))
	}
	var err error
	o.Person, err = i.Finish(ctx, o.Flow, query, s.now(), func() error {
		limiter, _ := s.answers.Get(client.Narrowest())
		if limiter == nil {
			limiter = rate.NewLimiter(rate.Every(answerPause), answersAtOnce)
			s.answers.Add(client.Narrowest(), limiter)
		}
		if !limiter.AllowN(s.now(), 1) {
			return store.Errorf(ErrBusy, "too many people are signing in from your address: try again in a few seconds")
		}
		o.Used = true
		return s.store.UseOnce(ctx, sha256.Sum256([]byte(o.State)), o.Began.Add(oidc.FlowLife))
	})
	if errors.Is(err, oidc.ErrNoRole) {
		if refused := s.store.RefuseByIssuer(ctx, o.Issuer, o.Subject); refused != nil {
			s.log.Error("failed to end the sessions of a user without a role", "issuer", o.Issuer, "error", refused)
		}
	}
	user, _ := s.store.FindIdentity(o.Issuer, o.Subject)
	if err == nil && o.Purpose == oidc.Confirm && user.ID != current.User {
		err = i.Other()
	}
	if err != nil || o.Purpose == oidc.Link {
		return o, s.issuerFailure(a.Address, i, err)
	}
	err = s.beginIssuerSession(ctx, &o, i, a)
	return o, err
}

func (s *Service) beginIssuerSession(ctx context.Context, o *Answered, i *oidc.Issuer, a Attempt) error {
	session, secret, kept, err := s.store.SignInByIssuer(ctx, store.IssuerSignIn{
		Issuer: o.Issuer, Subject: o.Subject, Account: i.Account, Name: o.Name, Role: o.Role, Groups: o.Groups,
		ConfirmedAt: o.ConfirmedAt, Address: remote(a.Address), UserAgent: a.UserAgent,
	})
	if !store.Committed(err) {
		return err
	}
	user, _ := s.store.User(session.User)
	o.Signed, o.KeptAdmin = Signed{User: user, Session: session, Secret: secret}, kept
	s.log.Info("signed in", "user_id", user.ID, "account_id", user.Account, "method", session.Method, "issuer", o.Issuer,
		"role", user.Role, "purpose", o.Purpose, "remote", remote(a.Address))
	return nil
}

// issuerFailure counts and logs a failure at an issuer, and returns the error for the user.
func (s *Service) issuerFailure(address string, i *oidc.Issuer, err error) error {
	if errors.Is(err, store.ErrUsed) {
		err = i.Retry("the state was used before")
	}
	f, ok := errors.AsType[*oidc.Failure](err)
	if !ok {
		return err
	}
	if f.Counts {
		s.guard.addressFailed(fair.Parse(address), s.now())
	}
	s.logFailure(address, store.MethodIssuer, i.URL+": "+cmp.Or(f.Cause, f.Error()))
	return f
}
