// Package pairing is the service where devices with a pairing code wait for a user's
// decision.
//
//	device ──hello──▶ tunnel.Hub ──Claim──▶ Service ──ClaimPairing──▶ Store
//	                      ▲                  ▲                       │
//	                      └──── Decided ─────┴────── Subscribe ──────┘
//
// The store keeps the pairings with their codes, and which device has claimed which
// code. A code is claimed in one transaction, so it works once, at any edge of a
// cluster. The [Service] keeps the tickets of connected devices, and the wrong codes
// of the last minutes. Only these are lost when a service is closed: devices
// reconnect to the next one with the same code and secret.
package pairing
