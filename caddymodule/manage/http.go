package manage

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// operation answers one method of a path: the status, and a value to encode.
type operation func(w http.ResponseWriter, r *http.Request) (int, any, error)

// Handler returns the JSON API under prefix, for example "/model_gateway".
// It does not authenticate: whoever mounts it decides who may call it.
func (s *Service) Handler(prefix string) http.Handler {
	mux := http.NewServeMux()
	for path, methods := range map[string]map[string]operation{
		"/status":             {http.MethodGet: s.getStatus},
		"/keys":               {http.MethodGet: s.getKeys, http.MethodPost: s.postKey},
		"/keys/{id}":          {http.MethodDelete: s.deleteKey},
		"/connectors":         {http.MethodGet: s.getConnectors, http.MethodPost: s.postConnector},
		"/connectors/{id}":    {http.MethodDelete: s.deleteConnector},
		"/deployments":        {http.MethodGet: s.getDeployments},
		"/deployments/{name}": {http.MethodPut: s.putDeployment, http.MethodDelete: s.deleteDeployment},
	} {
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
	if status == http.StatusInternalServerError {
		s.log.Error("management operation failed", "method", r.Method, "path", r.URL.Path, "error", err)
		text = "the gateway failed to do this; its log says why"
	}
	write(w, status, struct {
		Error string `json:"error"`
	}{text})
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

func (s *Service) getStatus(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return http.StatusOK, s.Status(r.Context()), nil
}

func (s *Service) getKeys(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return read(s, r, s.Keys)
}

func (s *Service) getConnectors(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return read(s, r, s.Connectors)
}

func (s *Service) getDeployments(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return read(s, r, s.Deployments)
}

// read answers with a list of the account that the query names.
func read[T any](s *Service, r *http.Request, fetch func(account string) ([]T, error)) (int, any, error) {
	account, err := accountParam(r)
	if err != nil {
		return 0, nil, err
	}
	account, err = s.account(r.Context(), account)
	if err != nil {
		return 0, nil, err
	}
	items, err := fetch(account)
	return http.StatusOK, items, err
}

func (s *Service) postKey(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var c CreateKey
	err := decodeBody(w, r,
		field{name: "name", to: &c.Name, required: true},
		field{name: "scope", to: &c.Scope, filled: true},
		field{name: "account", to: &c.Account},
	)
	if err != nil {
		return 0, nil, err
	}
	created, err := s.CreateKey(r.Context(), c)
	return http.StatusCreated, created, err
}

func (s *Service) postConnector(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var c CreateConnector
	err := decodeBody(w, r,
		field{name: "name", to: &c.Name, required: true},
		field{name: "account", to: &c.Account},
	)
	if err != nil {
		return 0, nil, err
	}
	created, err := s.CreateConnector(r.Context(), c)
	return http.StatusCreated, created, err
}

func (s *Service) putDeployment(w http.ResponseWriter, r *http.Request) (int, any, error) {
	d := SetDeployment{Name: r.PathValue("name")}
	err := decodeBody(w, r,
		field{name: "connector", to: &d.Connector, required: true},
		field{name: "upstream", to: &d.Upstream},
		field{name: "model", to: &d.Model},
		field{name: "account", to: &d.Account},
	)
	if err != nil {
		return 0, nil, err
	}
	set, err := s.SetDeployment(r.Context(), d)
	return http.StatusOK, set, err
}

func (s *Service) deleteKey(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	account, err := accountParam(r)
	if err != nil {
		return 0, nil, err
	}
	k, err := s.RevokeKey(r.Context(), account, r.PathValue("id"))
	return http.StatusOK, k, err
}

func (s *Service) deleteConnector(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	account, err := accountParam(r)
	if err != nil {
		return 0, nil, err
	}
	c, err := s.RemoveConnector(r.Context(), account, r.PathValue("id"))
	return http.StatusOK, c, err
}

func (s *Service) deleteDeployment(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	account, err := accountParam(r)
	if err != nil {
		return 0, nil, err
	}
	d, err := s.RemoveDeployment(r.Context(), account, r.PathValue("name"))
	return http.StatusOK, d, err
}
