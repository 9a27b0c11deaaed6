package store

import (
	"encoding/json"
	"slices"
	"strings"
)

// Rights are what a management token may be used for, as a set. In JSON they are
// an array of names.
type Rights uint8

// The rights. What lets people in is not among them: it needs a session.
const (
	RightRead        Rights = 1 << iota // see what the account has, but no secret
	RightKeys                           // make, revoke and remove API keys
	RightConnectors                     // make, rotate and remove connectors, pair devices
	RightDeployments                    // set, test and remove deployments

	AllRights = RightRead | RightKeys | RightConnectors | RightDeployments
)

var rightNames = []string{"read", "keys", "connectors", "deployments"}

// RightNames are the names of all rights.
func RightNames() []string { return slices.Clone(rightNames) }

// ParseRights returns the rights of these names. It fails with ErrInvalid if there
// is none, or one that does not exist.
func ParseRights(names []string) (Rights, error) {
	r, err := parseRights(names)
	if err == nil && r == 0 {
		err = errNoRights
	}
	return r, err
}

var errNoRights = Errorf(ErrInvalid, "a management token needs at least one right; the rights are %s", AllRights.String())

func parseRights(names []string) (Rights, error) {
	var r Rights
	for _, name := range names {
		i := slices.Index(rightNames, name)
		if i < 0 {
			return 0, Errorf(ErrInvalid, "there is no right %.40q; the rights are %s", name, strings.Join(rightNames, ", "))
		}
		r |= 1 << i
	}
	return r, nil
}

// Names returns the names of the rights in r.
func (r Rights) Names() []string {
	names := []string{}
	for i, name := range rightNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (r Rights) String() string { return strings.Join(r.Names(), ", ") }

// MarshalJSON implements [json.Marshaler].
func (r Rights) MarshalJSON() ([]byte, error) { return json.Marshal(r.Names()) }

// UnmarshalJSON implements [json.Unmarshaler].
func (r *Rights) UnmarshalJSON(data []byte) error {
	var names []string
	err := json.Unmarshal(data, &names)
	if err == nil {
		*r, err = parseRights(names)
	}
	return err
}
