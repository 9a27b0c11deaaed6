package link

import "github.com/postern-dev/postern/connector/text"

// SignIn is an update of a gateway to its peers about an attempt to sign in. Who may be the hash of a
// password.
type SignIn struct {
	text.Secrets
	Address string `json:"address,omitempty"` // of the client
	Who     []byte `json:"who,omitempty"`     // hash of a name, or of the id of a user
	// SignedIn means that the user was signed in and had to confirm the password. There is no
	// address then.
	SignedIn bool `json:"signed_in,omitempty"`
	// Right means that the attempt was successful, which ends the waiting time of the user.
	Right bool `json:"right,omitempty"`
	// Answered is the challenge of a passkey that was answered. The other fields are then empty.
	Answered string `json:"answered,omitempty"`
}

func (SignIn) kind() string { return "sign_in" }
