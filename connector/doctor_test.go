package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/doctor"
)

func TestDoctor(t *testing.T) {
	h := newHome(t)
	h.env["HTTPS_PROXY"] = ""
	code, stdout, stderr := h.run(t.Context(), "doctor", "--config", h.config)
	for _, part := range []string{"ok       configuration: " + h.config, "skipped  connector: ", "failed   udp: ", "         fix: start the model server", "skipped  stream of default"} {
		if !strings.Contains(stdout.String(), part) {
			t.Errorf("%q is missing in\n%s", part, stdout)
		}
	}
	if code != exitRuntime || !strings.Contains(stderr.String(), "checks failed") {
		t.Errorf("code %d, %s", code, stderr)
	}
	if code, _, stderr := h.run(t.Context(), "doctor", "--config", "/none"); code != exitUsage || !strings.Contains(stderr.String(), "/none") {
		t.Errorf("without a configuration: code %d, %s", code, stderr)
	}
}

func TestDoctorJSON(t *testing.T) {
	h := newHome(t)
	h.start()
	code, stdout, _ := h.run(t.Context(), "doctor", "--json", "--config", h.config)
	var got struct {
		OK     bool             `json:"ok"`
		Checks []doctor.Finding `json:"checks"`
	}
	if err := json.Unmarshal([]byte(stdout.String()), &got); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	if code != exitRuntime || got.OK || len(got.Checks) < 8 || got.Checks[1].Check != "connector" || got.Checks[1].Result != doctor.ResultFailed || got.Checks[1].Fix == "" {
		t.Errorf("code %d, %+v", code, got)
	}
}

func TestConfigFindingHasAllWarnings(t *testing.T) {
	f := configFinding("c.json", config.Loaded{Warnings: []string{"first", "second"}})
	if f.Result != doctor.ResultWarning || f.Detail != "first; second" {
		t.Errorf("%+v", f)
	}
}
