package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"time"
)

// checkTimeout is how long a model server has for the list of its models.
const checkTimeout = 5 * time.Second

// ValidateUpstreams checks all but what has to do with the tunnel: the upstreams
// and the routes.
func (c *Config) ValidateUpstreams() error {
	if err := c.validateUpstreams(); err != nil {
		return err
	}
	return c.validateRoutes()
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
	err := u.list(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("no answer within %v", checkTimeout)
	}
	return err
}

func (u *upstream) list(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/v1/models", nil)
	if err != nil {
		return err
	}
	u.readdress(r)
	body, err := readPayload(new(buffers), http.NoBody, 0)
	if err != nil {
		return err
	}
	defer body.release()
	answer, err := u.roundTrip(r, body)
	if err != nil {
		return err
	}
	defer answer.finish()
	if answer.status != http.StatusOK {
		return fmt.Errorf("it answers with status %d when asked for its models", answer.status)
	}
	var models struct {
		Data []json.RawMessage `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(answer, maxConfigBytes)).Decode(&models); err != nil || models.Data == nil {
		return errors.New("it answers, but not with a list of models")
	}
	return nil
}
