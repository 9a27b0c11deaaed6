package manage

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

// AdminPrefix is where Caddy's admin endpoint serves the management API.
const AdminPrefix = "/model_gateway"

// operation answers one method of a path: the status, and a value to encode.
type operation func(w http.ResponseWriter, r *http.Request) (int, any, error)

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
	return map[string]map[string]route{
		"/status":                   {get: {read, s.getStatus}},
		"/checklist":                {get: {read, s.getChecklist}},
		"/keys":                     {get: {read | keys, s.getKeys}, post: {keys, s.postKey}},
		"/keys/{id}":                {remove: {keys, s.deleteKey}},
		"/connectors":               {get: {read | connectors, s.getConnectors}, post: {connectors, s.postConnector}},
		"/connectors/{id}":          {remove: {connectors, s.deleteConnector}},
		"/connectors/{id}/models":   {get: {read | connectors | deployments, s.getModels}},
		"/connectors/{id}/rotate":   {post: {connectors, s.rotateConnector}},
		"/pairings":                 {get: {read | connectors, s.getPairings}, post: {connectors, s.postPairing}},
		"/pairings/approve":         {post: {connectors, s.approvePairing}},
		"/pairings/deny":            {post: {connectors, s.denyPairing}},
		"/offers":                   {get: {read | deployments, s.getOffers}},
		"/deployments":              {get: {read | deployments, s.getDeployments}},
		"/deployments/{name}":       {put: {deployments, s.putDeployment}, remove: {deployments, s.deleteDeployment}},
		"/deployments/{name}/test":  {post: {deployments, s.testDeployment}},
		"/activity":                 {get: {read, s.getActivity}},
		"/usage":                    {get: {read, s.getUsage}},
		"/users":                    {get: {read, s.getUsers}, post: {0, s.postUser}},
		"/users/{id}":               {remove: {0, s.deleteUser}},
		"/users/{id}/recovery-link": {post: {0, s.postRecoveryLink}},
		"/invitations":              {get: {read, s.getInvitations}, post: {0, s.postInvitation}},
		"/invitations/{id}":         {remove: {0, s.deleteInvitation}},
		"/setup-link":               {post: {0, s.postSetupLink}},
		"/tokens":                   {get: {read, s.getTokens}, post: {0, s.postToken}},
		"/tokens/{id}":              {remove: {0, s.deleteToken}},
		"/sessions":                 {get: {read, s.getSessions}, remove: {0, s.deleteSessions}},
		"/sessions/{id}":            {remove: {0, s.deleteSession}},
		"/sessions/confirm":         {post: {0, s.confirmSession}},
		"/accounts":                 {get: {0, s.getAccounts}, post: {0, s.postAccount}},
		"/accounts/{id}":            {patch: {0, s.patchAccount}, remove: {0, s.deleteAccount}},
	}
}

// Handler returns the JSON API under prefix, for example [AdminPrefix].
// It does not authenticate: whoever mounts it decides who may call it, and says
// who does by [WithCaller].
func (s *Service) Handler(prefix string) http.Handler {
	mux := http.NewServeMux()
	for path, methods := range s.routes() {
		mux.Handle(path, s.methods(methods))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, &requestError{http.StatusNotFound, fmt.Sprintf("there is nothing at %s", r.URL.Path)})
	})
	return http.StripPrefix(prefix, mux)
}

// methods dispatches by method here, not in the mux, so that its answer to a
// wrong one has the shape of all other errors.
func (s *Service) methods(byMethod map[string]route) http.Handler {
	allowed := make([]string, 0, len(byMethod))
	for m := range byMethod {
		allowed = append(allowed, m)
	}
	slices.Sort(allowed)
	allow := strings.Join(allowed, ", ")

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route, ok := byMethod[r.Method]
		if !ok {
			w.Header().Set("Allow", allow)
			s.fail(w, r, &requestError{http.StatusMethodNotAllowed, fmt.Sprintf("method %s is not possible here; use %s", r.Method, allow)})
			return
		}
		if err := tokenMay(CallerFrom(r.Context()), route.needs); err != nil {
			s.fail(w, r, err)
			return
		}
		status, answer, err := route.serve(w, r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		write(w, status, answer)
	})
}

// fail answers with an error. The text of an internal one stays in the log.
func (s *Service) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := statusOf(err), err.Error()
	if throttled := (*signin.ThrottledError)(nil); errors.As(err, &throttled) {
		w.Header().Set("Retry-After", throttled.Seconds())
	}
	if status == http.StatusInternalServerError {
		if r.Context().Err() == nil { // else the client has gone, which is no fault
			// Not the path itself: it may have a claim code.
			s.log.Error("management operation failed", "method", r.Method, "path", r.Pattern, "error", err)
		}
		text = "the gateway failed to do this; its log says why"
	}
	write(w, status, struct {
		Error string `json:"error"`
		Code  string `json:"code,omitempty"`
	}{text, Code(err)})
}

// write sends an answer. None of them may be kept by a cache: some carry
// secrets, and the others are out of date at once.
func write(w http.ResponseWriter, status int, answer any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(answer) // the client has gone: there is nobody to tell
}
