package store

import (
	"context"
	"fmt"
	"time"
)

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
	n := deploymentName{account, deployment}
	c, ok := v.calibrations.get(n)
	return c, ok && c.Since.Equal(v.deployments.value(n).UpdatedAt)
}

// SaveCalibration stores what was learned about a deployment, unless that has
// been registered anew or removed since.
func (s *Store) SaveCalibration(ctx context.Context, c Calibration) error {
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, deploymentPath(c.Account, c.Deployment))
		if err != nil || !item.Exists() {
			return Txn{}, err
		}
		d, err := decodeDeployment(item)
		if err != nil || !d.UpdatedAt.Equal(c.Since) {
			return Txn{}, err
		}
		op, err := encode(calibrationPath(c.Account, c.Deployment), calibrationRecord{version{recordVersion}, c})
		return Txn{If: []Compare{unchanged(item)}, Then: []Op{op}}, err
	})
	if err != nil {
		return fmt.Errorf("saving a calibration: %w", err)
	}
	return nil
}
