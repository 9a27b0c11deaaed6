package tunnel

import (
	"errors"
	"fmt"

	"github.com/postern-dev/postern/connector/link"
)

var (
	// ErrOffline: the connector has no tunnel, and did not come back in time.
	ErrOffline = errors.New("the connector is offline")
	// ErrNoRoute: the connector's tunnel is there, but neither deployment nor
	// connector names the upstream of a model. The text has the remedy.
	ErrNoRoute = errors.New("no upstream for the model")
	// ErrUnavailable is for Options.Authenticate to return, also wrapped, when
	// it cannot check a connector now: the connector will try again soon.
	ErrUnavailable = errors.New("connectors cannot be authenticated now")
	// ErrClosed: the hub is closed.
	ErrClosed = errors.New("the tunnel hub is closed")

	// errEnded: the session ended, or drains, before it took the request.
	errEnded = fmt.Errorf("the session has ended: %w", link.ErrNotSent)
)
