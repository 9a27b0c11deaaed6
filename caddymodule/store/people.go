package store

import (
	"encoding/json"
	"time"
)

// How long sessions last: SessionIdle after they were seen last, and never
// longer than SessionLife.
const (
	SessionIdle = 12 * time.Hour
	SessionLife = 7 * 24 * time.Hour
)

// The kinds of links.
const (
	LinkSetup      = "setup"      // creates the first user
	LinkInvitation = "invitation" // creates another user of the account
	LinkRecovery   = "recovery"   // sets a new password of a user
)

// User may sign in to the console and act for the account.
type User struct {
	ID        string    `json:"id"`
	Account   string    `json:"account"`
	Name      string    `json:"name"` // no other user of the gateway has it, in any case
	CreatedAt time.Time `json:"created_at"`
}

// Passkey is a way of a user to sign in without a password.
type Passkey struct {
	ID         []byte          `json:"id"`
	Name       string          `json:"name"`
	Credential json.RawMessage `json:"credential"`
	CreatedAt  time.Time       `json:"created_at"`
	LastUsedAt *time.Time      `json:"last_used_at"` // nil: never
}

// Session is a browser in which a user has signed in.
type Session struct {
	ID        string    `json:"id"`
	User      string    `json:"user"` // id
	Account   string    `json:"account"`
	Address   string    `json:"address"`
	UserAgent string    `json:"user_agent"`
	Method    string    `json:"method"` // by which the user signed in
	CreatedAt time.Time `json:"created_at"`
	SeenAt    time.Time `json:"seen_at"` // runs ahead of the file, see TouchSession
	ExpiresAt time.Time `json:"expires_at"`
	// ConfirmedAt is when the user last gave a password or a passkey in it.
	ConfirmedAt time.Time `json:"confirmed_at"`
}

// Link lets the one who has its secret do one thing, once.
type Link struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind"`
	Account   string    `json:"account"`
	User      string    `json:"user,omitempty"` // id; of a recovery link
	CreatedBy string    `json:"created_by"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Token authenticates a user's programs to the management API.
type Token struct {
	ID         string     `json:"id"`
	Account    string     `json:"account"`
	User       string     `json:"user"` // id
	Name       string     `json:"name"`
	CreatedAt  time.Time  `json:"created_at"`
	LastUsedAt *time.Time `json:"last_used_at"` // nil: never; runs ahead of the file
	Rights     Rights     `json:"rights"`
	ExpiresAt  *time.Time `json:"expires_at"` // nil: it does not end by itself
}

// Expired reports whether the token has ended by itself.
func (t Token) Expired(now time.Time) bool { return t.ExpiresAt != nil && !now.Before(*t.ExpiresAt) }
