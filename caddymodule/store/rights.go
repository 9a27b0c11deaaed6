package store

import (
	"encoding/json"
	"slices"
	"strings"
)

// Rights is the set of rights of a management token. In JSON it is an array of names.
type Rights uint8

// The rights. Managing users and their credentials is not among them: it requires a
// session.
const (
	RightRead        Rights = 1 << iota // read all records of the account, without secrets
	RightKeys                           // create, revoke and remove API keys
	RightConnectors                     // create, rotate and remove connectors, pair devices
	RightDeployments                    // set, test and remove deployments

	AllRights = RightRead | RightKeys | RightConnectors | RightDeployments
)

var rightNames = []string{"read", "keys", "connectors", "deployments"}

// RightNames returns the names of all rights.
func RightNames() []string { return slices.Clone(rightNames) }

// ParseRights returns the rights with these names. It fails with ErrInvalid if names is
// empty or contains an unknown name.
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
			return 0, Errorf(ErrInvalid, "unknown right %.40q; the rights are %s", name, strings.Join(rightNames, ", "))
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
