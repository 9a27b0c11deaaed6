// Package rotation brings new tunnel tokens to connectors, on their tunnels.
//
//	connector ◀──rotate── tunnel.Hub ──Next──────▶ Service ──OfferSecret───▶ Store
//	          ──rotated─▶            ──Rotated───▶      ──FinishRotation▶
//	          ──hello───▶            ──(allowed)─▶      ──FinishRotation▶
//
// The store has what must not be lost: that a rotation is under way, and the
// hashes of the new secrets. A new one is made when it is offered, and its text
// is kept in memory alone; a gateway that was restarted offers another one, and
// both are valid until the connector shows which of them it keeps: by its answer,
// or by a hello. So whenever one of the two ends is killed, the connector has a
// secret that lets it in.
package rotation
