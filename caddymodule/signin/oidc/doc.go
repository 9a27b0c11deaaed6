// Package oidc signs people in at OpenID Connect issuers: it sends a browser there, and turns the answer into who the
// person is, and the role that the claims give. Cookies, sessions and records are left to its callers.
//
// # An issuer that is down
//
// A [Provider] fetches the discovery document and the keys in the background, and at a sign-in while it has none. It
// outlives reloads. Requests have limits of time and size, and follow no redirect.
//
// # A flow
//
// [Issuer.Begin] makes a state, a nonce and a verifier of PKCE. The browser keeps them, sealed, for [FlowLife].
// [Issuer.Finish] compares the state, the time and the issuer before it sends anything, and calls once, which must
// accept each state once. A code, a state and a nonce are good for one sign-in.
//
// # Claims
//
// All claims of a decision are from one document: the ID token, or the answer of userinfo, which is asked only if the
// ID token lacks a claim. An issuer and a subject identify a person; names and addresses never do.
package oidc
