package rig

import (
	"context"
	"fmt"
	"time"
)

// Poll calls probe, with a pause of every after each call, until it returns
// nil. After limit it returns probe's last error, and at the end of ctx its
// cause.
func Poll(ctx context.Context, limit, every time.Duration, what string, probe func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var err error
	for {
		e := probe(within)
		if e == nil {
			return nil
		}
		if err == nil || within.Err() == nil { // the limit itself ends a probe with an error that says little
			err = e
		}
		select {
		case <-within.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("%s has not happened within %v: %w", what, limit, err)
		case <-time.After(every):
		}
	}
}
