package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/scope"
)

type deploymentRecord struct {
	header
	Deployment
}

func (r *deploymentRecord) key() recordKey { return recordKey{r.Account, r.Name} }
func (r *deploymentRecord) label() string  { return r.Name }

func (r *deploymentRecord) check() error {
	if err := scope.CheckName(r.Name); err != nil {
		return err
	}
	if len(r.Connectors) == 0 || r.MaxConcurrency < 0 {
		return errors.New("it has no connectors, or a negative limit; " +
			"it may be from a preview of Postern, whose deployments had one connector each: start with a new file")
	}
	return r.Options.Check()
}

var deploymentKind = &kind[deploymentRecord, *deploymentRecord]{
	dir: "deployments/", what: KindDeployment,
	collection: func(r *records) *collection[*deploymentRecord] { return &r.deployments },
}

// Deployment returns the deployment with this name. It takes no lock and
// allocates nothing.
func (s *Store) Deployment(account, name string) (Deployment, bool) {
	r, ok := deploymentKind.lookup(s.view.Load(), account, name)
	return r.Deployment, ok
}

// Deployments returns the deployments of an account by name.
func (s *Store) Deployments(account string) []Deployment {
	return list(deploymentKind.owned(s.view.Load(), account),
		func(r *deploymentRecord) (Deployment, bool) { return r.Deployment, true })
}

const (
	maxConnectors  = 32 // per deployment: one transaction covers all of them
	maxConcurrency = 1_000_000
)

// SetDeployment creates or replaces the deployment with this account and name. The
// connectors may be given by id or name; times and actors in d are ignored.
func (s *Store) SetDeployment(ctx context.Context, d Deployment) (Deployment, error) {
	return s.EditDeployment(ctx, d.Account, d.Name, func(edited *Deployment) error { *edited = d; return nil })
}

// EditDeployment creates or changes the deployment with this account and name. edit may be called
// several times; a new deployment is empty but for its account and name. The deployment's
// calibration is removed, since the model may have changed.
func (s *Store) EditDeployment(ctx context.Context, account, name string,
	edit func(*Deployment) error,
) (Deployment, error) {
	return update(ctx, s, "setting the deployment", func(t *tx) (Deployment, error) {
		d, before := Deployment{Account: account, Name: name}, deploymentKind.load(t, account, name)
		if before != nil {
			d = before.Deployment
		}
		if err := edit(&d); err != nil {
			return Deployment{}, err
		}
		if err := checkDeployment(d); err != nil {
			return Deployment{}, err
		}
		return setDeployment(t, d, before)
	})
}

func checkDeployment(d Deployment) error {
	if err := scope.CheckName(d.Name); err != nil {
		return InField("name", Errorf(ErrInvalid, "%v", err))
	}
	for _, part := range []struct{ field, what, name string }{
		{"upstream", "upstream", d.Upstream}, {"model", "upstream's model", d.Model},
	} {
		if part.name == "" {
			continue
		}
		if err := InField(part.field, checkLabel(part.what, part.name)); err != nil {
			return err
		}
	}
	switch {
	case len(d.Connectors) == 0:
		return Errorf(ErrInvalid, "the deployment %q needs at least one connector", d.Name)
	case len(d.Connectors) > maxConnectors:
		return Errorf(ErrInvalid, "the deployment %q has %d connectors, but the maximum is %d", d.Name, len(d.Connectors),
			maxConnectors)
	case d.MaxConcurrency < 0 || d.MaxConcurrency > maxConcurrency:
		return InField("max_concurrency", Errorf(ErrInvalid, "max_concurrency is %d, but must be between 1 and %d, or 0 for "+
			"no limit", d.MaxConcurrency, maxConcurrency))
	}
	if !slices.Contains(ModelKinds, d.ModelKind()) {
		return Errorf(ErrInvalid, "kind is %.40q, but must be one of %q", d.Kind, ModelKinds)
	}
	if err := d.Options.Check(); err != nil {
		return Errorf(ErrInvalid, "%v", err)
	}
	return InField("also_as", checkAlsoAs(d))
}

func setDeployment(t *tx, d Deployment, before *deploymentRecord) (Deployment, error) {
	if _, err := t.account(d.Account); err != nil {
		return Deployment{}, err
	}
	ids, err := useConnectors(t, d)
	if err != nil {
		return Deployment{}, err
	}
	if err := checkNames(t, d, before); err != nil {
		return Deployment{}, err
	}
	d.Connectors, d.Kind = ids, d.ModelKind()
	d.UpdatedAt = t.s.time()
	d.CreatedAt = d.UpdatedAt
	d.CreatedBy, d.ChangedBy = actor(t.ctx), actor(t.ctx)
	if before != nil {
		d.CreatedAt, d.CreatedBy = before.CreatedAt, before.CreatedBy
	} else if err := t.s.checkLimit(d.Account, deploymentKind); err != nil {
		return Deployment{}, err
	}
	deploymentKind.save(t, &deploymentRecord{Deployment: d})
	calibrationKind.remove(t, d.Account, d.Name)
	t.confirmed()
	return d, nil
}

// useConnectors returns the ids of the connectors of d. It changes their marks, so that a
// concurrent RemoveConnector tries again.
func useConnectors(t *tx, d Deployment) ([]string, error) {
	var ids []string
	for _, idOrName := range d.Connectors {
		c, err := findConnector(t, d.Account, idOrName)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(ids, c.ID) {
			ids = append(ids, c.ID)
			t.mark(dirConnectorUses + c.ID)
		}
	}
	return ids, nil
}

// RemoveDeployment removes the deployment and returns it as it was.
func (s *Store) RemoveDeployment(ctx context.Context, account, name string) (Deployment, error) {
	unknown := Errorf(ErrNotFound, "deployment %.140q not found in the account %.40q", name, account)
	r, err := deploymentKind.removeRecord(ctx, s, "removing the deployment", account, name, unknown,
		calibrationKind.path(account, name))
	if !Committed(err) {
		return Deployment{}, err
	}
	return r.Deployment, err
}

type calibrationRecord struct {
	header
	Calibration
}

func (r *calibrationRecord) key() recordKey { return recordKey{r.Account, r.Deployment} }

var calibrationKind = &kind[calibrationRecord, *calibrationRecord]{
	dir:        "calibrations/",
	collection: func(r *records) *collection[*calibrationRecord] { return &r.calibrations },
}

// Calibration corrects token counts for a deployment's model. It applies while the
// deployment's UpdatedAt equals Since.
type Calibration struct {
	Account    string    `json:"account"`
	Deployment string    `json:"deployment"`
	Since      time.Time `json:"since"`
	Plain      float64   `json:"plain,omitempty"` // ratio for prompts without tools; 0: unknown
	Tools      float64   `json:"tools,omitempty"` // ratio for prompts with tools; 0: unknown
}

// Calibration returns the calibration of a deployment's current configuration. It takes
// no lock and allocates nothing.
func (s *Store) Calibration(account, deployment string) (Calibration, bool) {
	v := s.view.Load()
	c, ok := calibrationKind.lookup(v, account, deployment)
	d, deployed := deploymentKind.lookup(v, account, deployment)
	if !ok || !deployed || !c.Since.Equal(d.UpdatedAt) {
		return Calibration{}, false
	}
	return c.Calibration, true
}

// SaveCalibration stores a calibration, unless the deployment has changed since.
func (s *Store) SaveCalibration(ctx context.Context, c Calibration) error {
	return s.update(ctx, "saving a calibration", func(t *tx) error {
		if d := deploymentKind.load(t, c.Account, c.Deployment); d != nil && d.UpdatedAt.Equal(c.Since) {
			calibrationKind.save(t, &calibrationRecord{Calibration: c})
		}
		return nil
	})
}
