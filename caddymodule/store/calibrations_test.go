package store_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

func TestCalibration(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	s := storetest.Open(t, path)
	c, _, err := s.CreateConnector(t.Context(), account, "Home GPU")
	must(t, err)
	d, err := s.SetDeployment(t.Context(), store.Deployment{Account: account, Name: "m", Connectors: []string{c.ID}})
	must(t, err)
	if got, ok := s.Calibration(account, "m"); ok {
		t.Errorf("a new deployment has %+v", got)
	}
	saved := store.Calibration{
		Account: account, Deployment: "m", Since: d.UpdatedAt, Plain: 1.25, Tools: 0.75,
	}
	must(t, s.SaveCalibration(t.Context(), saved))
	s2 := reopen(t, s, path)
	if got, ok := s2.Calibration(account, "m"); !ok || got != saved {
		t.Errorf("after reopening: %+v, %v", got, ok)
	}
}

// A calibration is removed with its deployment, and a late one is not stored.
func TestCalibrationIsOfOneRegistration(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	c, _, err := s.CreateConnector(t.Context(), account, "Home GPU")
	must(t, err)
	d := store.Deployment{Account: account, Name: "m", Connectors: []string{c.ID}}
	if d, err = s.SetDeployment(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	old := store.Calibration{Account: account, Deployment: "m", Since: d.UpdatedAt, Plain: 1.25}
	save := func(c store.Calibration) {
		t.Helper()
		must(t, s.SaveCalibration(t.Context(), c))
	}
	save(old)
	time.Sleep(2 * time.Millisecond) // times in records are whole milliseconds
	again, err := s.SetDeployment(t.Context(), d)
	must(t, err)
	if got, ok := s.Calibration(account, "m"); ok {
		t.Errorf("after registering again: %+v", got)
	}
	save(old)
	if got, ok := s.Calibration(account, "m"); ok {
		t.Errorf("saved for a former registration: %+v", got)
	}
	old.Since = again.UpdatedAt
	save(old)
	must(t, errOf(s.RemoveDeployment(t.Context(), account, "m")))
	save(old)
	if got, ok := s.Calibration(account, "m"); ok {
		t.Errorf("of a deployment that is gone: %+v", got)
	}
}
