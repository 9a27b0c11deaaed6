package manage

import (
	"context"
	"net/http"
	"reflect"

	"github.com/postern-dev/postern/caddymodule/store"
)

// route is an operation, and the rights of management tokens that allow it, any of
// needs. 0: the route is for sessions and operators only. roles are the roles of users
// that allow it.
type route struct {
	needs store.Rights
	roles roles
	operation
}

// operation handles one method of a path. docs/openapi.json is written from its types.
type operation struct {
	status          int // of success
	request, answer reflect.Type
	// serve returns a value to encode, of the type answer.
	serve func(w http.ResponseWriter, r *http.Request) (any, error)
}

// routes returns the operations by path and method.
func (s *Service) routes() map[string]map[string]route {
	const get, post, put, patch, remove = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete
	const read, keys, connectors,
		deployments = store.RightRead, store.RightKeys, store.RightConnectors, store.RightDeployments
	const ok, created = http.StatusOK, http.StatusCreated
	return map[string]map[string]route{
		"/status":          {get: {read, readers, of(ok, s.Status)}},
		"/backup":          {get: {0, admins, of(ok, s.backup)}},
		"/identity":        {get: {0, admins, of(ok, s.Identity)}},
		"/identity/rotate": {post: {0, admins, with(ok, s.RotateIdentity)}},
		"/identity/cancel": {post: {0, admins, of(ok, s.CancelIdentity)}},
		"/checklist":       {get: {read, readers, of(ok, s.Checklist)}},
		"/keys": {get: {read | keys, everyone, of(ok, s.Keys)},
			post: {keys, owners, with(created, s.CreateKey)}},
		"/keys/{id}": {get: {read | keys, everyone, ofRecord(ok, s.Key)}, patch: {keys, owners, with(ok, s.EditKey)},
			remove: {keys, owners, with(ok, s.DeleteKey)}},
		"/keys/{id}/limits":  {get: {read | keys, everyone, ofRecord(ok, s.KeyLimits)}},
		"/keys/{id}/rotate":  {post: {keys, owners, with(ok, s.RotateKey)}},
		"/keys/{id}/disable": {post: {keys, owners, ofRecord(ok, s.DisableKey)}},
		"/keys/{id}/enable":  {post: {keys, owners, ofRecord(ok, s.EnableKey)}},
		"/connectors": {get: {read | connectors, readers, of(ok, s.Connectors)},
			post: {connectors, admins, with(created, s.CreateConnector)}},
		"/connectors/{id}": {
			get:    {read | connectors, readers, ofRecord(ok, s.Connector)},
			patch:  {connectors, admins, with(ok, s.RenameConnector)},
			remove: {connectors, admins, ofRecord(ok, s.RemoveConnector)},
		},
		"/connectors/{id}/models": {get: {read | connectors | deployments, readers, ofRecord(ok, s.UpstreamModels)}},
		"/connectors/{id}/rotate": {post: {connectors, admins, with(ok, s.RotateConnector)}},
		"/pairings": {get: {connectors, admins, of(ok, s.Pairings)},
			post: {connectors, admins, of(created, s.StartPairing)}},
		"/pairings/approve": {post: {connectors, admins, with(ok, s.ApprovePairing)}},
		"/pairings/deny":    {post: {connectors, admins, with(ok, s.DenyPairing)}},
		"/offers":           {get: {read | deployments, readers, of(ok, s.knownOffers)}},
		"/deployments":      {get: {read | deployments, everyone, with(ok, s.MatchScope)}},
		"/deployments/{name}": {put: {deployments, admins, with(ok, s.SetDeployment)},
			remove: {deployments, admins, ofRecord(ok, s.RemoveDeployment)}},
		"/deployments/{name}/test": {post: {deployments, admins, ofRecord(ok, s.TestDeployment)}},
		"/activity":                {get: {read, everyone, of(ok, s.Activity)}},
		"/usage":                   {get: {read, everyone, s.usageRoute(ok)}},
		"/audit":                   {get: {read, readers, with(ok, s.Audit)}},
		"/users":                   {get: {read, readers, of(ok, s.Users)}, post: {0, admins, with(created, s.AddUser)}},
		"/users/{id}": {patch: {0, admins, with(ok, s.SetUser)},
			remove: {0, admins, ofRecord(ok, s.RemoveUser)}},
		"/users/{id}/recovery-link": {post: {0, admins, ofRecord(created, s.RecoveryLink)}},
		"/invitations": {get: {read, readers, of(ok, s.Invitations)},
			post: {0, admins, with(created, s.Invite)}},
		"/invitations/{id}":     {remove: {0, admins, ofRecord(ok, s.RevokeInvitation)}},
		"/setup-link":           {post: {0, admins, of(created, s.SetupLink)}},
		"/tokens":               {get: {read, everyone, of(ok, s.Tokens)}, post: {0, owners, with(created, s.CreateToken)}},
		"/tokens/{id}":          {remove: {0, owners, ofRecord(ok, s.RevokeToken)}},
		"/sessions":             {get: {read, everyone, of(ok, s.Sessions)}, remove: {0, everyone, of(ok, s.RevokeSessions)}},
		"/sessions/{id}":        {remove: {0, everyone, ofRecord(ok, s.RevokeSession)}},
		"/sessions/confirm":     {post: {0, everyone, with(ok, s.ConfirmSession)}},
		"/edges":                {get: {read, readers, of(ok, s.Edges)}},
		"/edges/{name}":         {remove: {0, admins, with(ok, s.RemoveEdge)}},
		"/edges/{name}/drain":   {post: {0, admins, ofRecord(ok, s.DrainEdge)}},
		"/edges/{name}/undrain": {post: {0, admins, ofRecord(ok, s.UndrainEdge)}},
		"/accounts":             {get: {0, admins, of(ok, s.Accounts)}, post: {0, admins, with(created, s.CreateAccount)}},
		"/accounts/{id}": {patch: {0, admins, with(ok, s.SetAccount)},
			remove: {0, admins, ofRecord(ok, s.RemoveAccount)}},
	}
}

// with returns the operation that decodes a request and calls do.
func with[B, T any](status int, do func(ctx context.Context, request B) (T, error)) operation {
	serve := func(w http.ResponseWriter, r *http.Request) (any, error) {
		request, account, err := decode[B](w, r)
		if err != nil {
			return nil, err
		}
		ctx, err := inAccount(r.Context(), account)
		if err != nil {
			return nil, err
		}
		return do(ctx, request)
	}
	return operation{status, reflect.TypeFor[B](), reflect.TypeFor[T](), serve}
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

// knownOffers lists the known offers.
func (s *Service) knownOffers(ctx context.Context) ([]Offer, error) {
	offers, _, err := s.Offers(ctx)
	return offers, err
}
