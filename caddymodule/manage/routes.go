package manage

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/postern-dev/postern/caddymodule/store"
)

// route is an operation, and which rights a management token may do it with: any
// one of needs. Routes without are for sessions and operators.
type route struct {
	needs store.Rights
	serve operation
}

// routes are the operations by path and method.
func (s *Service) routes() map[string]map[string]route {
	const get, post, put, patch, remove = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete
	const read, keys, connectors, deployments = store.RightRead, store.RightKeys, store.RightConnectors, store.RightDeployments
	const ok, created = http.StatusOK, http.StatusCreated
	return map[string]map[string]route{
		"/status":                   {get: {read, ofCaller(s.callerStatus)}},
		"/checklist":                {get: {read, ofAccount(s, s.Checklist)}},
		"/keys":                     {get: {read | keys, ofAccount(s, s.Keys)}, post: {keys, withBody(created, s.CreateKey)}},
		"/keys/{id}":                {remove: {keys, ofRecord(s, s.DeleteKey)}},
		"/connectors":               {get: {read | connectors, ofAccount(s, s.Connectors)}, post: {connectors, withBody(created, s.CreateConnector)}},
		"/connectors/{id}":          {remove: {connectors, ofRecord(s, s.RemoveConnector)}},
		"/connectors/{id}/models":   {get: {read | connectors | deployments, ofRecord(s, s.UpstreamModels)}},
		"/connectors/{id}/rotate":   {post: {connectors, withBody(ok, s.RotateConnector)}},
		"/pairings":                 {get: {read | connectors, ofAccount(s, s.Pairings)}, post: {connectors, withBody(created, inAccount(s.StartPairing))}},
		"/pairings/approve":         {post: {connectors, withBody(ok, s.approve)}},
		"/pairings/deny":            {post: {connectors, withBody(ok, s.deny)}},
		"/offers":                   {get: {read | deployments, ofRecord(s, s.knownOffers)}},
		"/deployments":              {get: {read | deployments, s.getDeployments}},
		"/deployments/{name}":       {put: {deployments, withBody(ok, s.putDeployment)}, remove: {deployments, ofRecord(s, s.RemoveDeployment)}},
		"/deployments/{name}/test":  {post: {deployments, withBody(ok, onRecord(s.TestDeployment))}},
		"/activity":                 {get: {read, ofAccount(s, s.Activity)}},
		"/usage":                    {get: {read, s.getUsage}},
		"/users":                    {get: {read, ofAccount(s, s.Users)}, post: {0, withBody(created, s.AddUser)}},
		"/users/{id}":               {remove: {0, ofRecord(s, s.RemoveUser)}},
		"/users/{id}/recovery-link": {post: {0, withBody(created, onRecord(s.RecoveryLink))}},
		"/invitations":              {get: {read, ofAccount(s, s.Invitations)}, post: {0, withBody(created, inAccount(s.Invite))}},
		"/invitations/{id}":         {remove: {0, ofRecord(s, s.RevokeInvitation)}},
		"/setup-link":               {post: {0, withBody(created, func(ctx context.Context, _ struct{}) (Link, error) { return s.SetupLink(ctx) })}},
		"/tokens":                   {get: {read, ofAccount(s, s.Tokens)}, post: {0, withBody(created, s.CreateToken)}},
		"/tokens/{id}":              {remove: {0, s.deleteToken}},
		"/sessions":                 {get: {read, ofCaller(s.Sessions)}, remove: {0, ofCaller(s.endSessions)}},
		"/sessions/{id}":            {remove: {0, byID(s.RevokeSession)}},
		"/sessions/confirm":         {post: {0, withBody(ok, s.confirm)}},
		"/accounts":                 {get: {0, ofCaller(s.Accounts)}, post: {0, withBody(created, s.postAccount)}},
		"/accounts/{id}":            {patch: {0, withBody(ok, s.patchAccount)}, remove: {0, byID(s.RemoveAccount)}},
	}
}

// ofAccount answers with what is known of the account that the query names.
func ofAccount[T any](s *Service, fetch func(account string) (T, error)) operation {
	return ofRecord(s, func(_ context.Context, account, _ string) (T, error) { return fetch(account) })
}

// ofRecord answers with what becomes of the record that the path names, in the
// account that the query names.
func ofRecord[T any](s *Service, do func(ctx context.Context, account, id string) (T, error)) operation {
	return func(_ http.ResponseWriter, r *http.Request) (int, any, error) {
		query, err := params(r, "account")
		if err != nil {
			return 0, nil, err
		}
		account, err := s.account(r.Context(), query.Get("account"))
		if err != nil {
			return 0, nil, err
		}
		answer, err := do(r.Context(), account, recordOf(r))
		return http.StatusOK, answer, err
	}
}

// byID is [ofRecord] for records of no account.
func byID[T any](do func(ctx context.Context, id string) (T, error)) operation {
	return func(_ http.ResponseWriter, r *http.Request) (int, any, error) {
		if _, err := params(r); err != nil {
			return 0, nil, err
		}
		answer, err := do(r.Context(), r.PathValue("id"))
		return http.StatusOK, answer, err
	}
}

// ofCaller answers with what the caller may see.
func ofCaller[T any](fetch func(ctx context.Context) (T, error)) operation {
	return byID(func(ctx context.Context, _ string) (T, error) { return fetch(ctx) })
}

// withBody answers with what becomes of what the body asks for.
func withBody[B, T any](status int, do func(ctx context.Context, body B) (T, error)) operation {
	return func(w http.ResponseWriter, r *http.Request) (int, any, error) {
		body, err := decodeBody[B](w, r)
		if err != nil {
			return 0, nil, err
		}
		answer, err := do(r.Context(), body)
		return status, answer, err
	}
}

// recordOf is the record that the path names.
func recordOf(r *http.Request) string { return cmp.Or(r.PathValue("id"), r.PathValue("name")) }

// recordBody is the body of a request about a record, or only about an account.
type recordBody struct {
	ID      string `path:"record"`
	Account string `json:"account"`
}

func inAccount[T any](do func(ctx context.Context, account string) (T, error)) func(context.Context, recordBody) (T, error) {
	return func(ctx context.Context, b recordBody) (T, error) { return do(ctx, b.Account) }
}

func onRecord[T any](do func(ctx context.Context, account, id string) (T, error)) func(context.Context, recordBody) (T, error) {
	return func(ctx context.Context, b recordBody) (T, error) { return do(ctx, b.Account, b.ID) }
}

func (s *Service) callerStatus(ctx context.Context) (Status, error) {
	if !CallerFrom(ctx).Operator {
		if _, err := s.account(ctx, ""); err != nil {
			return Status{}, err
		}
	}
	return s.Status(ctx), nil
}

// getDeployments lists the deployments, or those that a scope allows.
func (s *Service) getDeployments(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	query, err := params(r, "account", "scope")
	if err != nil {
		return 0, nil, err
	}
	account, err := s.account(r.Context(), query.Get("account"))
	if err != nil {
		return 0, nil, err
	}
	deployments, err := s.Deployments(account)
	if err != nil || !query.Has("scope") {
		return http.StatusOK, deployments, err
	}
	names, err := s.MatchScope(account, query.Get("scope"))
	deployments = slices.DeleteFunc(deployments, func(d Deployment) bool {
		_, allowed := slices.BinarySearch(names, d.Name)
		return !allowed
	})
	return http.StatusOK, deployments, err
}

// putDeployment takes one connector, or several.
func (s *Service) putDeployment(ctx context.Context, d SetDeployment) (Deployment, error) {
	switch {
	case d.Connector != "" && d.Connectors != nil:
		return Deployment{}, badRequest("fields %q and %q exclude each other; give all in %q", "connector", "connectors", "connectors")
	case d.Connector != "":
		d.Connectors = []string{d.Connector}
	case len(d.Connectors) == 0:
		return Deployment{}, badRequest("field %q or %q is required", "connector", "connectors")
	}
	return s.SetDeployment(ctx, d)
}

// knownOffers lists the offers that are known; others may be missing.
func (s *Service) knownOffers(ctx context.Context, account, _ string) ([]Offer, error) {
	offers, err := s.Offers(ctx, account)
	if errors.Is(err, ErrIncomplete) {
		err = nil
	}
	return offers, err
}

// usageDays is how many days are reported on if the query does not name a number.
const usageDays = 30

func (s *Service) getUsage(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	query, err := params(r, "account", "days")
	if err != nil {
		return 0, nil, err
	}
	days := usageDays
	if query.Has("days") {
		if days, err = strconv.Atoi(query.Get("days")); err != nil {
			return 0, nil, badRequest("query parameter %q must be a number of days", "days")
		}
	}
	usage, err := s.Usage(r.Context(), query.Get("account"), days)
	return http.StatusOK, usage, err
}

// decision is the body of a request that decides about a device. The pairing is
// named there, not in the path: it may be named by its claim code, and addresses
// get into logs.
type decision struct {
	Pairing     string `json:"pairing" need:"required"`
	Name        string `json:"name" need:"filled"`
	Replace     string `json:"replace" need:"filled"`
	Fingerprint string `json:"fingerprint" need:"filled"`
	Account     string `json:"account"`
}

func (s *Service) approve(ctx context.Context, d decision) (Pairing, error) {
	if d.Fingerprint != "" {
		if err := s.CheckFingerprint(ctx, d.Account, d.Pairing, d.Fingerprint); err != nil {
			return Pairing{}, err
		}
	}
	switch {
	case d.Name != "" && d.Replace != "":
		return Pairing{}, badRequest("fields %q and %q exclude each other; a connector that is replaced keeps its name", "name", "replace")
	case d.Replace != "":
		return s.ReplaceConnector(ctx, d.Account, d.Pairing, d.Replace)
	}
	return s.ApprovePairing(ctx, d.Account, d.Pairing, d.Name)
}

type denial struct {
	Pairing string `json:"pairing" need:"required"`
	Account string `json:"account"`
}

func (s *Service) deny(ctx context.Context, d denial) (Pairing, error) {
	return s.DenyPairing(ctx, d.Account, d.Pairing)
}

func (s *Service) deleteToken(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	query, err := params(r, "account", "made")
	if err != nil {
		return 0, nil, err
	}
	revoke := s.RevokeToken
	switch query.Get("made") {
	case "remove":
		revoke = s.RevokeTokenAndMade
	case "":
	default:
		return 0, nil, badRequest("query parameter %q can only be %q, to revoke and remove what the token has made, too", "made", "remove")
	}
	t, err := revoke(r.Context(), query.Get("account"), r.PathValue("id"))
	return http.StatusOK, t, err
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

type newAccount struct {
	ID     string `json:"id" need:"required"`
	Limits givenLimits
}

func (s *Service) postAccount(ctx context.Context, a newAccount) (store.Account, error) {
	return s.CreateAccount(ctx, a.ID, a.Limits)
}

type changedAccount struct {
	ID     string `path:"record"`
	Limits givenLimits
}

func (s *Service) patchAccount(ctx context.Context, a changedAccount) (store.Account, error) {
	return s.SetAccount(ctx, a.ID, a.Limits)
}
