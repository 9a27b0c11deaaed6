package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/text"
)

// UserIdentity is an identity at an OpenID Connect issuer with which a user signs in.
type UserIdentity struct {
	Issuer  string `json:"issuer"`  // URL
	Subject string `json:"subject"` // unique at the issuer
	// Role is what the issuer last gave: "" before the first sign-in, and after a sign-in that was refused.
	Role       Role      `json:"role,omitempty"`
	Groups     []string  `json:"groups,omitempty"`      // values of the last sign-in that groups of the account have
	SignedInAt time.Time `json:"signed_in_at,omitzero"` // zero: not yet
}

// identityRecord finds the user of an identity. The identity itself is in the user's record, so that one read shows
// all that decides about the user's keys.
type identityRecord struct {
	header
	Hash    string `json:"hash"` // of issuer and subject
	Account string `json:"account"`
	User    string `json:"user"`
}

func (r *identityRecord) key() recordKey      { return recordKey{id: r.Hash} }
func (r *identityRecord) ended(w *sweep) bool { return w.userRemoved(r.User) }

var identityKind = &kind[identityRecord, *identityRecord]{
	dir:        "identities/",
	collection: func(r *records) *collection[*identityRecord] { return &r.identities },
}

func hashIdentity(issuer, subject string) string {
	hash := sha256.Sum256([]byte(issuer + "\x00" + subject))
	return hex.EncodeToString(hash[:])
}

const (
	maxIdentities = 10  // of a user
	maxSubject    = 255 // bytes of a subject, by OpenID Connect
	maxBaseName   = 120 // bytes of the name of a new user, without a number
	maxNameNumber = 99
)

// IssuerSignIn contains what an issuer asserts about a person who signs in.
type IssuerSignIn struct {
	Issuer, Subject    string
	Account            string // of a new user
	Name               string // of a new user, unless another one has it
	Role               Role   // by the claims
	Groups             []string
	ConfirmedAt        time.Time // when the person has proved who it is; zero: not now
	Address, UserAgent string
}

// SignInByIssuer signs a person in. It finds or creates the user of the identity, sets the role by the claims, and
// creates the session, all in one write. It returns the session with its secret. keptAdmin is set if the claims give
// less than the role of an admin, but the user stays the last admin. It fails with ErrConflict if the issuer is no
// longer in the configuration.
func (s *Store) SignInByIssuer(ctx context.Context, in IssuerSignIn) (
	signed Session, secret string, keptAdmin bool, err error,
) {
	if !slices.Contains(Roles(), in.Role) {
		return Session{}, "", false, Errorf(ErrInvalid, "the issuer has given no role")
	}
	r, secret := s.newSession(MethodIssuer, in.Address, in.UserAgent, s.policy.Load().lifetime())
	if r.Issuer, r.ConfirmedAt = in.Issuer, in.ConfirmedAt; r.ConfirmedAt.After(r.CreatedAt) {
		r.ConfirmedAt = r.CreatedAt
	}
	var u *userRecord
	var was Role
	signed, err = update(ctx, s, "signing in", func(t *tx) (Session, error) {
		p := s.policy.Load()
		if err := p.checkIdentity(in.Issuer, in.Subject); err != nil {
			return Session{}, err
		}
		save := func(t *tx, u *userRecord) error { userKind.save(t, u); return nil }
		if u = loadIdentity(t, in.Issuer, in.Subject); u != nil {
			was = u.Role
		} else {
			if u, err = s.newIssuerUser(t, in); err != nil {
				return Session{}, err
			}
			was, save = "", createUser
			linkIdentity(t, u, in.Issuer, in.Subject)
		}
		i := u.identity(in.Issuer, in.Subject)
		i.Role, i.SignedInAt, u.SignedInAt, i.Groups = in.Role, r.CreatedAt, r.CreatedAt, nil
		for _, g := range groupKind.loadAll(t, u.Account) {
			if g.Claim != "" && slices.Contains(in.Groups, g.Claim) {
				i.Groups = append(i.Groups, g.Claim)
			}
		}
		keptAdmin = u.followClaims(t, p)
		return addSession(t, u, r), save(t, u)
	})
	if Committed(err) {
		s.auditClaims(ctx, u, in.Issuer, was, keptAdmin)
	}
	return signed, secret, keptAdmin, err
}

// auditClaims adds an entry to the audit log if the claims of a user have changed the role, or the last admin keeps it.
func (s *Store) auditClaims(ctx context.Context, u *userRecord, issuer string, was Role, keptAdmin bool) {
	if was == u.Role && !keptAdmin {
		return
	}
	o := Operation{Kind: "user.claims", Record: u.ID, Name: u.Name, By: issuer}
	if o.Details = map[string]string{"role": string(u.Role)}; keptAdmin {
		o.Kind = "user.last_admin"
	}
	if err := s.AddOperation(ctx, u.Account, o); err != nil {
		s.log.Warn("failed to save a change of a role", "user_id", u.ID, "error", err)
	}
}

// checkIdentity checks an identity, whose issuer must be in the configuration.
func (p *SignInPolicy) checkIdentity(issuer, subject string) error {
	if !p.allows(issuer) {
		return InField("issuer", Errorf(ErrConflict, "the configuration has no issuer %.120q; it has: %s", issuer,
			cmp.Or(strings.Join(p.Issuers, ", "), "none")))
	}
	if subject == "" || len(subject) > maxSubject || !text.IsPrintable(subject) {
		return InField("subject", Errorf(ErrInvalid, "the subject must have 1 to %d printable bytes: it is the claim `sub`",
			maxSubject))
	}
	return nil
}

// loadIdentity reads the user of an identity, nil if there is none.
func loadIdentity(t *tx, issuer, subject string) *userRecord {
	r := identityKind.load(t, "", hashIdentity(issuer, subject))
	if r == nil {
		return nil
	}
	u := userKind.load(t, r.Account, r.User)
	if u == nil || u.identity(issuer, subject) == nil {
		return nil
	}
	return u
}

// identity returns an identity of the user, nil if the user does not have it.
func (r *userRecord) identity(issuer, subject string) *UserIdentity {
	at := slices.IndexFunc(r.Identities, func(i UserIdentity) bool { return i.Issuer == issuer && i.Subject == subject })
	if at < 0 {
		return nil
	}
	return &r.Identities[at]
}

// linkIdentity adds an identity to a user. The caller saves the user.
func linkIdentity(t *tx, u *userRecord, issuer, subject string) {
	u.Identities, u.SignedInAt = append(u.Identities, UserIdentity{Issuer: issuer, Subject: subject}), t.s.time()
	identityKind.save(t, &identityRecord{Hash: hashIdentity(issuer, subject), Account: u.Account, User: u.ID})
}

// newIssuerUser returns a new user with the name that the issuer gives, or that name with a number if it is in use.
func (s *Store) newIssuerUser(t *tx, in IssuerSignIn) (*userRecord, error) {
	base := strings.TrimSpace(text.Printable(strings.TrimSpace(in.Name), maxBaseName))
	if checkName("user", prefixUser, base) != nil {
		base = "user"
	}
	for n := 1; n <= maxNameNumber; n++ {
		name := base
		if n > 1 {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		if _, taken := s.FindUser(name); !taken && !t.get(userNamePath(name)).Exists() {
			return s.newUser(in.Account, name, "", in.Role)
		}
	}
	return nil, Errorf(ErrExists, "the name %q is in use, up to %s-%d: ask an admin to remove a user", base, base,
		maxNameNumber)
}

// followClaims gives the user the groups, and the highest role, that issuers of the configuration have given within
// SessionLife; without one, the role of a viewer. The last admin of an account keeps the role, and followClaims reports
// that.
func (r *userRecord) followClaims(t *tx, p *SignInPolicy) (keptAdmin bool) {
	order := Roles() // the highest first
	best, groups := len(order)-1, []string(nil)
	for _, i := range r.Identities {
		at := slices.Index(order, i.Role)
		if at >= 0 && p.allows(i.Issuer) && t.s.now().Before(i.SignedInAt.Add(SessionLife)) {
			best, groups = min(best, at), append(groups, i.Groups...)
		}
	}
	setClaimGroups(t, r.User, groups)
	role := order[best]
	if r.Role == RoleAdmin && role != RoleAdmin && !t.hasOtherAdmin(r.Account, r.ID) {
		return true
	}
	if best > slices.Index(order, r.Role) {
		t.confirmed()
	}
	r.Role = role
	return false
}

// RefuseByIssuer records that an issuer no longer gives a person a role. The role of the user falls to what other
// issuers give, but the last admin of the account stays one. The sessions that the issuer has begun end.
func (s *Store) RefuseByIssuer(ctx context.Context, issuer, subject string) error {
	var was Role
	var keptAdmin bool
	u, err := update(ctx, s, "refusing the user", func(t *tx) (*userRecord, error) {
		u := loadIdentity(t, issuer, subject)
		if u == nil {
			return nil, nil
		}
		was, keptAdmin = u.Role, false
		if i := u.identity(issuer, subject); i.Role != "" {
			i.Role, i.Groups = "", nil
			keptAdmin = u.followClaims(t, s.policy.Load())
			userKind.save(t, u)
		}
		return u, nil
	})
	if u == nil || !Committed(err) {
		return err
	}
	s.auditClaims(ctx, u, issuer, was, keptAdmin)
	return cmp.Or(s.endIssuerSessions(ctx, u.ID, issuer), err)
}

// endIssuerSessions ends the sessions of a user that an issuer has begun.
func (s *Store) endIssuerSessions(ctx context.Context, user, issuer string) error {
	return s.endSessions(ctx, sessionKind.owned(s.view.Load(), user), func(o *Session) bool { return o.Issuer == issuer })
}

// FindIdentity returns the user of an identity.
func (s *Store) FindIdentity(issuer, subject string) (User, bool) {
	v := s.view.Load()
	r, _ := identityKind.lookup(v, "", hashIdentity(issuer, subject))
	u, ok := userKind.byID(v, r.User)
	return u.User, ok && u.identity(issuer, subject) != nil
}

// Identities returns the identities of a user in the order in which they were linked.
func (s *Store) Identities(userID string) []UserIdentity {
	r, _ := userKind.byID(s.view.Load(), userID)
	return slices.Clone(r.Identities)
}

// LinkIdentity adds an identity at an issuer of the configuration to a user, given by id or name. It fails with
// ErrExists if another user has the identity. The role of the user stays until the next sign-in by the issuer.
func (s *Store) LinkIdentity(ctx context.Context, account, idOrName, issuer, subject string) (User, error) {
	if err := s.policy.Load().checkIdentity(issuer, subject); err != nil {
		return User{}, err
	}
	return update(ctx, s, "linking the identity", func(t *tx) (User, error) {
		u, err := findUser(t, account, idOrName)
		if err != nil {
			return User{}, err
		}
		switch has := loadIdentity(t, issuer, subject); {
		case has != nil && has.ID == u.ID:
			return u.User, nil
		case has != nil:
			return User{}, Errorf(ErrExists, "another user signs in with this identity: unlink it there first")
		case len(u.Identities) >= maxIdentities:
			return User{}, Errorf(ErrLimit, "the user has %d identities, which is the maximum: unlink one first", maxIdentities)
		}
		linkIdentity(t, u, issuer, subject)
		userKind.save(t, u)
		return u.User, nil
	})
}

// UnlinkIdentity removes an identity from a user, given by id or name, and ends the sessions that its issuer has begun.
// It fails with ErrConflict if the user could then no longer sign in.
func (s *Store) UnlinkIdentity(ctx context.Context, account, idOrName, issuer, subject string) (User, error) {
	user, err := update(ctx, s, "unlinking the identity", func(t *tx) (User, error) {
		u, err := findUser(t, account, idOrName)
		if err != nil {
			return User{}, err
		}
		if u.identity(issuer, subject) == nil {
			return User{}, Errorf(ErrNotFound, "the user %q does not have this identity: use an issuer and a subject from "+
				"the list of users", u.Name)
		}
		p := s.policy.Load()
		u.Identities = slices.DeleteFunc(u.Identities,
			func(i UserIdentity) bool { return i.Issuer == issuer && i.Subject == subject })
		if p.allows(issuer) && !p.hasWayIn(t, u, "") {
			return User{}, errLastWayIn
		}
		if slices.ContainsFunc(u.Identities, func(i UserIdentity) bool { return i.Role != "" }) {
			u.followClaims(t, p)
		} else {
			setClaimGroups(t, u.User, nil)
		}
		identityKind.remove(t, "", hashIdentity(issuer, subject))
		userKind.save(t, u)
		t.confirmed()
		return u.User, nil
	})
	if !Committed(err) {
		return User{}, err
	}
	return user, cmp.Or(s.endIssuerSessions(ctx, user.ID, issuer), err)
}
