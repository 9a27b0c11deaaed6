package store

import (
	"context"
	"time"
)

type calibrationRecord struct {
	header
	Calibration
}

func (r *calibrationRecord) place() key { return key{r.Account, r.Deployment} }

var calibrationKind = &kind[calibrationRecord, *calibrationRecord]{
	dir: dirCalibrations,
	in:  func(r *records) *collection[*calibrationRecord] { return &r.calibrations },
}

// Calibration is what was learned about counting the tokens of a deployment's
// model, for the registration that was made at Since, the deployment's
// UpdatedAt.
type Calibration struct {
	Account    string    `json:"account"`
	Deployment string    `json:"deployment"`
	Since      time.Time `json:"since"`
	Plain      float64   `json:"plain,omitempty"` // ratio for prompts without tools; 0: not known
	Tools      float64   `json:"tools,omitempty"` // ratio for prompts with tools; 0: not known
}

// Calibration returns what was learned about a deployment as it is registered
// now. It takes no lock and allocates nothing.
func (s *Store) Calibration(account, deployment string) (Calibration, bool) {
	v := s.view.Load()
	c, ok := calibrationKind.at(v, account, deployment)
	d, deployed := deploymentKind.at(v, account, deployment)
	if !ok || !deployed || !c.Since.Equal(d.UpdatedAt) {
		return Calibration{}, false
	}
	return c.Calibration, true
}

// SaveCalibration stores what was learned about a deployment, unless that has
// been registered again or removed since.
func (s *Store) SaveCalibration(ctx context.Context, c Calibration) error {
	return s.update(ctx, "saving a calibration", func(t *tx) error {
		if d := deploymentKind.load(t, c.Account, c.Deployment); d != nil && d.UpdatedAt.Equal(c.Since) {
			calibrationKind.save(t, &calibrationRecord{Calibration: c})
		}
		return nil
	})
}
