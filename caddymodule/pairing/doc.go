// Package pairing is the service where devices with a claim code wait until a
// person has decided about them.
//
//	device ──hello──▶ tunnel.Hub ──Claim──▶ Service ──ClaimPairing──▶ Store
//	                      ▲                  ▲                       │
//	                      └──── Decided ─────┴────── Subscribe ──────┘
//
// The store has what must not be lost: the pairings, and which device has
// which code. The [Service] has the tickets of the devices that are connected now,
// the codes that this process has made, to show them again, and the wrong codes
// of the last minutes. A service that is closed loses nothing else: devices come
// back to the next one with the code and the secret of before.
package pairing
