package manage

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/signin"
)

// operation answers one method of a path: the status, and a value to encode.
type operation func(w http.ResponseWriter, r *http.Request) (int, any, error)

// routes are the operations by path and method.
func (s *Service) routes() map[string]map[string]operation {
	const get, post, put, remove = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	return map[string]map[string]operation{
		"/status":                   {get: s.getStatus},
		"/checklist":                {get: s.getChecklist},
		"/keys":                     {get: s.getKeys, post: s.postKey},
		"/keys/{id}":                {remove: s.deleteKey},
		"/connectors":               {get: s.getConnectors, post: s.postConnector},
		"/connectors/{id}":          {remove: s.deleteConnector},
		"/connectors/{id}/models":   {get: s.getModels},
		"/connectors/{id}/rotate":   {post: s.rotateConnector},
		"/pairings":                 {get: s.getPairings, post: s.postPairing},
		"/pairings/approve":         {post: s.approvePairing},
		"/pairings/deny":            {post: s.denyPairing},
		"/offers":                   {get: s.getOffers},
		"/deployments":              {get: s.getDeployments},
		"/deployments/{name}":       {put: s.putDeployment, remove: s.deleteDeployment},
		"/deployments/{name}/test":  {post: s.testDeployment},
		"/activity":                 {get: s.getActivity},
		"/usage":                    {get: s.getUsage},
		"/users":                    {get: s.getUsers, post: s.postUser},
		"/users/{id}":               {remove: s.deleteUser},
		"/users/{id}/recovery-link": {post: s.postRecoveryLink},
		"/invitations":              {get: s.getInvitations, post: s.postInvitation},
		"/invitations/{id}":         {remove: s.deleteInvitation},
		"/setup-link":               {post: s.postSetupLink},
		"/tokens":                   {get: s.getTokens, post: s.postToken},
		"/tokens/{id}":              {remove: s.deleteToken},
		"/sessions":                 {get: s.getSessions, remove: s.deleteSessions},
		"/sessions/{id}":            {remove: s.deleteSession},
		"/sessions/confirm":         {post: s.confirmSession},
		"/accounts":                 {get: s.getAccounts, post: s.postAccount},
		"/accounts/{id}":            {remove: s.deleteAccount},
	}
}

// Handler returns the JSON API under prefix, for example "/model_gateway".
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
func (s *Service) methods(byMethod map[string]operation) http.Handler {
	allowed := make([]string, 0, len(byMethod))
	for m := range byMethod {
		allowed = append(allowed, m)
	}
	slices.Sort(allowed)
	allow := strings.Join(allowed, ", ")

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve, ok := byMethod[r.Method]
		if !ok {
			w.Header().Set("Allow", allow)
			s.fail(w, r, &requestError{http.StatusMethodNotAllowed, fmt.Sprintf("method %s is not possible here; use %s", r.Method, allow)})
			return
		}
		status, answer, err := serve(w, r)
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
