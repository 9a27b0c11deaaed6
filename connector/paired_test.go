package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Without --config, the commands find the connector that install.sh has set up for root.
func TestConfigurationOfTheMachine(t *testing.T) {
	h := newHome(t)
	own := filepath.Join(h.env["HOME"], "postern", "connector.json")
	h.env["XDG_CONFIG_HOME"] = h.env["HOME"]
	execute := func(machine string, args ...string) (code int, stdout, stderr string) {
		var out, failures output
		sys := h.system(&out, &failures)
		sys.config, sys.executable = machine, "/connector"
		return run(t.Context(), args, sys), out.String(), failures.String()
	}
	none := filepath.Join(h.env["HOME"], "none.json")
	for _, command := range []string{"status", "run", "doctor", "reload"} {
		if code, _, stderr := execute(none, command); code == exitOK ||
			!strings.Contains(stderr, "there is no "+own+" and no "+none) {
			t.Errorf("%s of a machine that is not paired: code %d, %s", command, code, stderr)
		}
	}
	h.start()
	if _, stdout, stderr := execute(h.config, "status"); !strings.Contains(stdout, h.config) {
		t.Errorf("status: %s, %s", stdout, stderr)
	}
	if _, stdout, stderr := execute(h.config, "doctor"); !strings.Contains(stdout, "configuration: "+h.config) {
		t.Errorf("doctor: %s, %s", stdout, stderr)
	}
	if code, stdout, stderr := execute(h.config, "reload"); code != exitOK || !strings.Contains(stdout, h.config) {
		t.Errorf("reload: code %d, %s, %s", code, stdout, stderr)
	}
	// The user's connector comes first.
	if err := errors.Join(os.MkdirAll(filepath.Dir(own), 0o700), os.WriteFile(own, []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := execute(h.config, "status"); code != exitRuntime ||
		!strings.Contains(stderr, "no connector is running with "+own) {
		t.Errorf("status with a configuration of the user: code %d, %s", code, stderr)
	}
}
