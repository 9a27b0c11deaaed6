package manage

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// onlyAccount reads a body that has at most the account.
func onlyAccount(w http.ResponseWriter, r *http.Request) (account string, err error) {
	err = decodeBody(w, r, field{name: "account", to: &account})
	return account, err
}

func (s *Service) getPairings(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return one(s, r, s.Pairings)
}

func (s *Service) postPairing(w http.ResponseWriter, r *http.Request) (int, any, error) {
	account, err := onlyAccount(w, r)
	if err != nil {
		return 0, nil, err
	}
	p, err := s.StartPairing(r.Context(), account)
	return http.StatusCreated, p, err
}

// The pairing that is decided about is named in the body: it may be named by its
// claim code, and addresses get into logs.
func (s *Service) approvePairing(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var account, codeOrID, name, replace, fingerprint string
	err := decodeBody(w, r,
		field{name: "pairing", to: &codeOrID, required: true},
		field{name: "name", to: &name, filled: true},
		field{name: "replace", to: &replace, filled: true},
		field{name: "fingerprint", to: &fingerprint, filled: true},
		field{name: "account", to: &account},
	)
	if err == nil && fingerprint != "" {
		err = s.CheckFingerprint(r.Context(), account, codeOrID, fingerprint)
	}
	switch {
	case err != nil:
		return 0, nil, err
	case name != "" && replace != "":
		return 0, nil, badRequest("fields %q and %q exclude each other; a connector that is replaced keeps its name", "name", "replace")
	case replace != "":
		p, err := s.ReplaceConnector(r.Context(), account, codeOrID, replace)
		return http.StatusOK, p, err
	}
	p, err := s.ApprovePairing(r.Context(), account, codeOrID, name)
	return http.StatusOK, p, err
}

func (s *Service) denyPairing(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var account, codeOrID string
	err := decodeBody(w, r,
		field{name: "pairing", to: &codeOrID, required: true},
		field{name: "account", to: &account},
	)
	if err != nil {
		return 0, nil, err
	}
	p, err := s.DenyPairing(r.Context(), account, codeOrID)
	return http.StatusOK, p, err
}

func (s *Service) getUsers(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return one(s, r, s.Users)
}

func (s *Service) postUser(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var a AddUser
	err := decodeBody(w, r,
		field{name: "name", to: &a.Name, required: true},
		field{name: "password", to: &a.Password, required: true},
		field{name: "account", to: &a.Account},
	)
	if err != nil {
		return 0, nil, err
	}
	u, err := s.AddUser(r.Context(), a)
	return http.StatusCreated, u, err
}

func (s *Service) deleteUser(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return item(s, r, "id", s.RemoveUser)
}

func (s *Service) postRecoveryLink(w http.ResponseWriter, r *http.Request) (int, any, error) {
	account, err := onlyAccount(w, r)
	if err != nil {
		return 0, nil, err
	}
	l, err := s.RecoveryLink(r.Context(), account, r.PathValue("id"))
	return http.StatusCreated, l, err
}

func (s *Service) getInvitations(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return one(s, r, s.Invitations)
}

func (s *Service) postInvitation(w http.ResponseWriter, r *http.Request) (int, any, error) {
	account, err := onlyAccount(w, r)
	if err != nil {
		return 0, nil, err
	}
	l, err := s.Invite(r.Context(), account)
	return http.StatusCreated, l, err
}

func (s *Service) deleteInvitation(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return item(s, r, "id", s.RevokeInvitation)
}

func (s *Service) postSetupLink(w http.ResponseWriter, r *http.Request) (int, any, error) {
	if err := decodeBody(w, r); err != nil {
		return 0, nil, err
	}
	l, err := s.SetupLink(r.Context())
	return http.StatusCreated, l, err
}

func (s *Service) getTokens(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return one(s, r, s.Tokens)
}

func (s *Service) postToken(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var c CreateToken
	var rights []string
	var end string
	err := decodeBody(w, r,
		field{name: "name", to: &c.Name, required: true},
		field{name: "user", to: &c.User, filled: true},
		field{name: "rights", list: &rights},
		field{name: "expires_at", to: &end, filled: true},
		field{name: "account", to: &c.Account},
	)
	if err == nil && rights != nil {
		c.Rights, err = store.ParseRights(rights)
	}
	if err == nil && end != "" {
		c.ExpiresAt, err = parseEnd(end)
	}
	if err != nil {
		return 0, nil, err
	}
	t, err := s.CreateToken(r.Context(), c)
	return http.StatusCreated, t, err
}

// parseEnd reads a time at which something is to end.
func parseEnd(text string) (*time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, badRequest("field %q must be a time such as 2027-01-31T12:00:00Z, not %.40q", "expires_at", text)
	}
	at = at.UTC().Truncate(time.Millisecond)
	return &at, nil
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

func (s *Service) getSessions(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	if _, err := params(r); err != nil {
		return 0, nil, err
	}
	sessions, err := s.Sessions(r.Context())
	return http.StatusOK, sessions, err
}

func (s *Service) confirmSession(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var password string
	if err := decodeBody(w, r, field{name: "password", to: &password, required: true}); err != nil {
		return 0, nil, err
	}
	session, err := s.ConfirmSession(r.Context(), password)
	return http.StatusOK, session, err
}

func (s *Service) deleteSession(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return byID(r, s.RevokeSession)
}

func (s *Service) deleteSessions(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	if _, err := params(r); err != nil {
		return 0, nil, err
	}
	n, err := s.RevokeSessions(r.Context())
	return http.StatusOK, struct {
		Ended int `json:"ended"`
	}{n}, err
}

func (s *Service) getAccounts(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	if _, err := params(r); err != nil {
		return 0, nil, err
	}
	accounts, err := s.Accounts(r.Context())
	return http.StatusOK, accounts, err
}

func (s *Service) postAccount(w http.ResponseWriter, r *http.Request) (int, any, error) {
	var id string
	limits, err := decodeLimits(w, r, field{name: "id", to: &id, required: true})
	if err != nil {
		return 0, nil, err
	}
	a, err := s.CreateAccount(r.Context(), id, limits)
	return http.StatusCreated, a, err
}

func (s *Service) patchAccount(w http.ResponseWriter, r *http.Request) (int, any, error) {
	limits, err := decodeLimits(w, r)
	if err != nil {
		return 0, nil, err
	}
	a, err := s.SetAccount(r.Context(), r.PathValue("id"), limits)
	return http.StatusOK, a, err
}

// decodeLimits reads a body that may have limits, and returns those that it has.
func decodeLimits(w http.ResponseWriter, r *http.Request, fields ...field) (map[string]int, error) {
	names := store.LimitNames()
	const left = math.MinInt // left out
	given := make([]int, len(names))
	for i, name := range names {
		given[i] = left
		fields = append(fields, field{name: name, count: &given[i]})
	}
	if err := decodeBody(w, r, fields...); err != nil {
		return nil, err
	}
	limits := make(map[string]int)
	for i, name := range names {
		if given[i] != left {
			limits[name] = given[i]
		}
	}
	return limits, nil
}

func (s *Service) deleteAccount(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	return byID(r, s.RemoveAccount)
}

// byID answers with what becomes of the record that the path names, of no
// account.
func byID[T any](r *http.Request, do func(ctx context.Context, id string) (T, error)) (int, any, error) {
	if _, err := params(r); err != nil {
		return 0, nil, err
	}
	answer, err := do(r.Context(), r.PathValue("id"))
	return http.StatusOK, answer, err
}
