package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"time"
)

// checkTimeout is how long a model server has for the list of its models.
const checkTimeout = 5 * time.Second

// ValidateUpstreams checks all but what has to do with the tunnel: the upstreams
// the routes, and what else is allowed.
func (c *Config) ValidateUpstreams() error {
	if err := c.validateUpstreams(); err != nil {
		return err
	}
	if err := c.validateRoutes(); err != nil {
		return err
	}
	_, err := c.allowed()
	return err
}

// UpstreamNames returns the names that the gateway knows the upstreams by.
func (c *Config) UpstreamNames() []string { return c.upstreamNames() }

// CheckUpstreams asks each upstream of the configuration in the file at path for
// its models, and returns a warning for each that does not answer as it should:
// it may be started later.
func (c *Config) CheckUpstreams(ctx context.Context, path string, logger *slog.Logger) ([]string, error) {
	anchored := *c
	anchored.Upstreams = maps.Clone(c.Upstreams)
	anchored.anchor(filepath.Dir(path))
	upstreams, err := anchored.open(logger)
	if err != nil {
		return nil, err
	}
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(upstreams)) {
		if err := upstreams[name].check(ctx); err != nil {
			warnings = append(warnings, fmt.Sprintf("the model server at %s cannot be used yet: %v; start it, or check the address", upstreams[name].address, err))
		}
	}
	return warnings, nil
}

// check asks the model server for its models.
func (u *upstream) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	defer u.idle.drop()
	_, err := u.list(ctx)
	var status *statusError
	if errors.As(err, &status) {
		err = fmt.Errorf("%w when asked for its models", err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("no answer within %v", checkTimeout)
	}
	return err
}
