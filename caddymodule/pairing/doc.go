// Package pairing is the service where devices with a pairing code wait for a user's
// decision.
//
//	device ──hello──▶ tunnel.Hub ──Claim──▶ Service ──ClaimPairing──▶ Store
//	                      ▲                  ▲                       │
//	                      └──── Decided ─────┴────── Subscribe ──────┘
//
// The store keeps the state that must survive a restart: the pairings, and which
// device has claimed which code. The [Service] keeps the tickets of connected
// devices, the codes that this process has created, to show them again, and the
// wrong codes of the last minutes. Only these are lost when a service is closed:
// devices reconnect to the next one with the same code and secret. The services of
// a cluster publish them to each other.
package pairing
