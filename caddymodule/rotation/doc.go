// Package rotation sends new tunnel tokens to connectors through their tunnels.
//
//	connector ◀──rotate── tunnel.Hub ──Next──────▶ Service ──OfferSecret───▶ Store
//	          ──rotated─▶            ──Rotated───▶      ──FinishRotation▶
//	          ──hello───▶            ──(allowed)─▶      ──FinishRotation▶
//
// The store keeps the state that must survive a restart: the pending rotation and
// the hashes of the new secrets. A secret is created when it is offered, and its
// text is kept only in memory. After a restart the gateway offers another one. All
// offered secrets are valid until the connector confirms one, by its answer or by a
// hello. So the connector has a valid secret even if either end is killed at any
// time.
package rotation
