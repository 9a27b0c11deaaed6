package tunnel

import (
	"errors"
	"fmt"

	"github.com/postern-dev/postern/connector/link"
)

var (
	// ErrOffline: the connector has no tunnel and did not reconnect in time.
	ErrOffline = errors.New("the connector is offline")
	// ErrNoRoute: the connector is online, but neither the deployment nor the
	// connector names the upstream of a model. The message includes the remedy.
	ErrNoRoute = errors.New("no upstream for the model")
	// ErrUnavailable is returned by Options.Authenticate, possibly wrapped, when it
	// cannot check a connector now. The connector will try again soon.
	ErrUnavailable = errors.New("connectors cannot be authenticated now")
	// ErrClosed: the hub is closed.
	ErrClosed = errors.New("the tunnel hub is closed")

	// errEnded: the session ended or began to drain before it took the request.
	errEnded = fmt.Errorf("the session has ended: %w", link.ErrNotSent)
)
