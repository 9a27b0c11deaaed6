// Package rotation sends new tunnel tokens to connectors through their tunnels.
//
//	connector ◀──rotate── tunnel.Hub ──Next──────▶ Service ──OfferSecret───▶ Store
//	          ──rotated─▶            ──Rotated───▶      ──FinishRotation▶
//	          ──hello───▶            ──Hello─────▶      ──OfferNumber──▶
//
// The store keeps the state that must survive a restart: the pending rotation and
// the hashes of the new secrets. A secret is created when it is offered, and its
// text is kept only in memory. After a restart the gateway offers another one, as does
// another gateway on the same store. All offered secrets are valid until the connector
// confirms one, by its answer or by a hello.
//
// Offers are numbered. A connector stores no offer below the number of its token, and a
// confirmed number invalidates only the lower ones. So the secret that it has stored is
// confirmed, or has a higher number than the confirmed one. In both cases it is valid, in
// whatever order offers and answers arrive, and even if either end is killed at any time.
package rotation
