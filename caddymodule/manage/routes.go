package manage

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/postern-dev/postern/caddymodule/store"
)

// route is an operation, and the rights of management tokens that allow it, any of
// needs. 0: the route is for sessions and operators only.
type route struct {
	needs store.Rights
	serve operation
}

// routes returns the operations by path and method.
func (s *Service) routes() map[string]map[string]route {
	const get, post, put, patch, remove = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete
	const read, keys, connectors, deployments = store.RightRead, store.RightKeys, store.RightConnectors, store.RightDeployments
	const ok, created = http.StatusOK, http.StatusCreated
	return map[string]map[string]route{
		"/status":                   {get: {read, of(ok, s.Status)}},
		"/checklist":                {get: {read, of(ok, s.Checklist)}},
		"/keys":                     {get: {read | keys, of(ok, s.Keys)}, post: {keys, with(created, s.CreateKey)}},
		"/keys/{id}":                {remove: {keys, ofRecord(ok, s.DeleteKey)}},
		"/connectors":               {get: {read | connectors, of(ok, s.Connectors)}, post: {connectors, with(created, s.CreateConnector)}},
		"/connectors/{id}":          {remove: {connectors, ofRecord(ok, s.RemoveConnector)}},
		"/connectors/{id}/models":   {get: {read | connectors | deployments, ofRecord(ok, s.UpstreamModels)}},
		"/connectors/{id}/rotate":   {post: {connectors, with(ok, s.RotateConnector)}},
		"/pairings":                 {get: {read | connectors, of(ok, s.Pairings)}, post: {connectors, of(created, s.StartPairing)}},
		"/pairings/approve":         {post: {connectors, with(ok, s.approve)}},
		"/pairings/deny":            {post: {connectors, with(ok, s.deny)}},
		"/offers":                   {get: {read | deployments, of(ok, s.knownOffers)}},
		"/deployments":              {get: {read | deployments, with(ok, s.getDeployments)}},
		"/deployments/{name}":       {put: {deployments, with(ok, s.putDeployment)}, remove: {deployments, ofRecord(ok, s.RemoveDeployment)}},
		"/deployments/{name}/test":  {post: {deployments, ofRecord(ok, s.TestDeployment)}},
		"/activity":                 {get: {read, of(ok, s.Activity)}},
		"/usage":                    {get: {read, with(ok, s.getUsage)}},
		"/users":                    {get: {read, of(ok, s.Users)}, post: {0, with(created, s.AddUser)}},
		"/users/{id}":               {remove: {0, ofRecord(ok, s.RemoveUser)}},
		"/users/{id}/recovery-link": {post: {0, ofRecord(created, s.RecoveryLink)}},
		"/invitations":              {get: {read, of(ok, s.Invitations)}, post: {0, of(created, s.Invite)}},
		"/invitations/{id}":         {remove: {0, ofRecord(ok, s.RevokeInvitation)}},
		"/setup-link":               {post: {0, of(created, s.SetupLink)}},
		"/tokens":                   {get: {read, of(ok, s.Tokens)}, post: {0, with(created, s.CreateToken)}},
		"/tokens/{id}":              {remove: {0, with(ok, s.deleteToken)}},
		"/sessions":                 {get: {read, of(ok, s.Sessions)}, remove: {0, of(ok, s.endSessions)}},
		"/sessions/{id}":            {remove: {0, ofRecord(ok, s.RevokeSession)}},
		"/sessions/confirm":         {post: {0, with(ok, s.confirm)}},
		"/accounts":                 {get: {0, of(ok, s.Accounts)}, post: {0, with(created, s.CreateAccount)}},
		"/accounts/{id}":            {patch: {0, with(ok, s.SetAccount)}, remove: {0, ofRecord(ok, s.RemoveAccount)}},
	}
}

// with returns the operation that decodes a request and calls do.
func with[B, T any](status int, do func(ctx context.Context, request B) (T, error)) operation {
	return func(w http.ResponseWriter, r *http.Request) (int, any, error) {
		request, account, err := decode[B](w, r)
		if err != nil {
			return 0, nil, err
		}
		ctx, err := inAccount(r.Context(), account)
		if err != nil {
			return 0, nil, err
		}
		answer, err := do(ctx, request)
		return status, answer, err
	}
}

// of is [with] for an operation without fields.
func of[T any](status int, do func(ctx context.Context) (T, error)) operation {
	return with(status, func(ctx context.Context, _ struct{}) (T, error) { return do(ctx) })
}

// ofRecord is [with] for an operation on the record of the path.
func ofRecord[T any](status int, do func(ctx context.Context, id string) (T, error)) operation {
	type record struct {
		ID string `path:"record"`
	}
	return with(status, func(ctx context.Context, r record) (T, error) { return do(ctx, r.ID) })
}

type listDeployments struct {
	Scope string `json:"scope" need:"filled"`
}

// getDeployments lists all deployments, or those of a scope.
func (s *Service) getDeployments(ctx context.Context, l listDeployments) ([]Deployment, error) {
	deployments, err := s.Deployments(ctx)
	if err != nil || l.Scope == "" {
		return deployments, err
	}
	names, err := s.MatchScope(ctx, l.Scope)
	return slices.DeleteFunc(deployments, func(d Deployment) bool {
		_, allowed := slices.BinarySearch(names, d.Name)
		return !allowed
	}), err
}

// putDeployment accepts one connector or several.
func (s *Service) putDeployment(ctx context.Context, d SetDeployment) (Deployment, error) {
	switch {
	case d.Connector != "" && d.Connectors != nil:
		return Deployment{}, badRequest("fields %q and %q exclude each other; put all connectors into %q", "connector", "connectors", "connectors")
	case d.Connector != "":
		d.Connectors = []string{d.Connector}
	case len(d.Connectors) == 0:
		return Deployment{}, badRequest("field %q or %q is required", "connector", "connectors")
	}
	return s.SetDeployment(ctx, d)
}

// knownOffers lists the known offers.
func (s *Service) knownOffers(ctx context.Context) ([]Offer, error) {
	offers, _, err := s.Offers(ctx)
	return offers, err
}

type usageOf struct {
	Days string `json:"days" need:"filled"`
}

func (s *Service) getUsage(ctx context.Context, u usageOf) ([]store.UsageDay, error) {
	const usual = "30"
	days, err := strconv.Atoi(cmp.Or(u.Days, usual))
	if err != nil {
		return nil, badRequest("query parameter %q must be a number of days", "days")
	}
	return s.Usage(ctx, days)
}

// decision approves a device. The pairing is in the body, not in the path: it may be
// a pairing code, and paths are logged.
type decision struct {
	Pairing     string `json:"pairing" need:"required"`
	Name        string `json:"name" need:"filled"`
	Replace     string `json:"replace" need:"filled"`
	Fingerprint string `json:"fingerprint" need:"filled"`
}

func (s *Service) approve(ctx context.Context, d decision) (Pairing, error) {
	if d.Fingerprint != "" {
		if err := s.CheckFingerprint(ctx, d.Pairing, d.Fingerprint); err != nil {
			return Pairing{}, err
		}
	}
	switch {
	case d.Name != "" && d.Replace != "":
		return Pairing{}, badRequest("fields %q and %q exclude each other; a connector that is replaced keeps its name", "name", "replace")
	case d.Replace != "":
		return s.ReplaceConnector(ctx, d.Pairing, d.Replace)
	}
	return s.ApprovePairing(ctx, d.Pairing, d.Name)
}

type denial struct {
	Pairing string `json:"pairing" need:"required"`
}

func (s *Service) deny(ctx context.Context, d denial) (Pairing, error) {
	return s.DenyPairing(ctx, d.Pairing)
}

type removedToken struct {
	ID   string `path:"record"`
	Made string `json:"made" need:"filled"`
}

func (s *Service) deleteToken(ctx context.Context, t removedToken) (RevokedToken, error) {
	switch t.Made {
	case "":
		return s.RevokeToken(ctx, t.ID)
	case "remove":
		return s.RevokeTokenAndMade(ctx, t.ID)
	}
	return RevokedToken{}, badRequest("query parameter %q must be %q, which also revokes and removes the records that the token created", "made", "remove")
}

type confirmation struct {
	Password string `json:"password" need:"required"`
}

func (s *Service) confirm(ctx context.Context, c confirmation) (Session, error) {
	return s.ConfirmSession(ctx, c.Password)
}

type endedSessions struct {
	Ended int `json:"ended"`
}

func (s *Service) endSessions(ctx context.Context) (endedSessions, error) {
	n, err := s.RevokeSessions(ctx)
	return endedSessions{n}, err
}
