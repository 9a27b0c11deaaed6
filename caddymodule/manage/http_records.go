package manage

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
)

func (s *Service) getStatus(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	if _, err := params(r); err != nil {
		return 0, nil, err
	}
	if c := CallerFrom(r.Context()); !c.Operator {
		if _, err := s.account(r.Context(), ""); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusOK, s.Status(r.Context()), nil
}

func (s *Service) getChecklist(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return one(s, r, s.Checklist)
}

func (s *Service) getKeys(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return one(s, r, s.Keys)
}

func (s *Service) getConnectors(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return one(s, r, s.Connectors)
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

// one answers with what is known of the account that the query names.
func one[T any](s *Service, r *http.Request, fetch func(account string) (T, error)) (int, any, error) {
	account, err := s.accountParam(r)
	if err != nil {
		return 0, nil, err
	}
	answer, err := fetch(account)
	return http.StatusOK, answer, err
}

// item answers with what becomes of the record that the path names, in the
// account that the query names.
func item[T any](s *Service, r *http.Request, name string, do func(ctx context.Context, account, name string) (T, error)) (int, any, error) {
	account, err := s.accountParam(r)
	if err != nil {
		return 0, nil, err
	}
	answer, err := do(r.Context(), account, r.PathValue(name))
	return http.StatusOK, answer, err
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
	var connector string
	err := decodeBody(w, r,
		field{name: "connector", to: &connector},
		field{name: "connectors", list: &d.Connectors},
		field{name: "upstream", to: &d.Upstream},
		field{name: "model", to: &d.Model},
		field{name: "max_concurrency", count: &d.MaxConcurrency},
		field{name: "options", options: &d.Options},
		field{name: "account", to: &d.Account},
	)
	switch {
	case err != nil:
		return 0, nil, err
	case connector != "" && d.Connectors != nil:
		return 0, nil, badRequest("fields %q and %q exclude each other; give all in %q", "connector", "connectors", "connectors")
	case connector != "":
		d.Connectors = []string{connector}
	case len(d.Connectors) == 0:
		return 0, nil, badRequest("field %q or %q is required", "connector", "connectors")
	}
	set, err := s.SetDeployment(r.Context(), d)
	return http.StatusOK, set, err
}

func (s *Service) deleteKey(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return item(s, r, "id", s.DeleteKey)
}

func (s *Service) deleteConnector(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return item(s, r, "id", s.RemoveConnector)
}

func (s *Service) rotateConnector(w http.ResponseWriter, r *http.Request) (int, any, error) {
	rotate := RotateConnector{Connector: r.PathValue("id")}
	err := decodeBody(w, r,
		field{name: "show", yes: &rotate.Show},
		field{name: "account", to: &rotate.Account},
	)
	if err != nil {
		return 0, nil, err
	}
	rotated, err := s.RotateConnector(r.Context(), rotate)
	return http.StatusOK, rotated, err
}

func (s *Service) getModels(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return item(s, r, "id", s.UpstreamModels)
}

func (s *Service) deleteDeployment(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return item(s, r, "name", s.RemoveDeployment)
}

func (s *Service) testDeployment(w http.ResponseWriter, r *http.Request) (int, any, error) {
	account, err := onlyAccount(w, r)
	if err != nil {
		return 0, nil, err
	}
	result, err := s.TestDeployment(r.Context(), account, r.PathValue("name"))
	return http.StatusOK, result, err
}

func (s *Service) getOffers(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	account, err := s.accountParam(r)
	if err != nil {
		return 0, nil, err
	}
	offers, err := s.Offers(r.Context(), account)
	if errors.Is(err, ErrIncomplete) { // what there is is right
		err = nil
	}
	return http.StatusOK, offers, err
}

func (s *Service) getActivity(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return one(s, r, s.Activity)
}

// usageDays is how many days are reported on if the query does not say.
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
