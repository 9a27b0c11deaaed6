package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/quic-go/quic-go"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/doctor"
	"github.com/postern-dev/postern/connector/link"
)

// toBusyGateway pairs the machine with a gateway that refuses all connections at once. The
// closed port of testToken stays silent.
func (h *home) toBusyGateway() {
	h.t.Helper()
	key, err := link.NewIdentity()
	if err != nil {
		h.t.Fatal(err)
	}
	certificate, _, err := link.Identity(key)
	if err != nil {
		h.t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		h.t.Fatal(err)
	}
	gateway := &quic.Transport{
		Conn: socket,
		ConnContext: func(context.Context, *quic.ClientInfo) (context.Context, error) {
			return nil, errors.New("busy")
		},
	}
	if _, err := gateway.Listen(link.GatewayTLS(certificate), link.GatewayQUIC()); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		gateway.Close()
		socket.Close()
	})
	config := fmt.Sprintf(`{"tunnel_token": %q, "upstream": "http://127.0.0.1:1", "server": %q}`, testToken.Encode(),
		socket.LocalAddr())
	if err := os.WriteFile(h.config, []byte(config), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func TestDoctor(t *testing.T) {
	h := newHome(t)
	h.toBusyGateway()
	h.env["HTTPS_PROXY"] = ""
	code, stdout, stderr := h.run(t.Context(), "doctor", "--config", h.config)
	for _, part := range []string{
		"ok       configuration: " + h.config, "skipped  connector: ", "failed   udp: ",
		"         fix: start the model server", "skipped  stream of default",
	} {
		if !strings.Contains(stdout.String(), part) {
			t.Errorf("%q is missing in\n%s", part, stdout)
		}
	}
	if code != exitRuntime || !strings.Contains(stderr.String(), "checks failed") {
		t.Errorf("code %d, %s", code, stderr)
	}
	if code, _, stderr := h.run(t.Context(), "doctor", "--config", "/none"); code != exitUsage ||
		!strings.Contains(stderr.String(), "/none") {
		t.Errorf("without a configuration: code %d, %s", code, stderr)
	}
}

func TestDoctorJSON(t *testing.T) {
	h := newHome(t)
	h.toBusyGateway()
	h.start()
	code, stdout, _ := h.run(t.Context(), "doctor", "--json", "--config", h.config)
	var got struct {
		OK     bool             `json:"ok"`
		Checks []doctor.Finding `json:"checks"`
	}
	if err := json.Unmarshal([]byte(stdout.String()), &got); err != nil {
		t.Fatalf("%v in %s", err, stdout)
	}
	if code != exitRuntime || got.OK || len(got.Checks) < 8 || got.Checks[1].Check != "connector" ||
		got.Checks[1].Result != doctor.ResultFailed || got.Checks[1].Fix == "" {
		t.Errorf("code %d, %+v", code, got)
	}
}

func TestConfigFindingHasAllWarnings(t *testing.T) {
	f := configFinding("c.json", config.Loaded{Warnings: []string{"first", "second"}})
	if f.Result != doctor.ResultWarning || f.Detail != "first; second" {
		t.Errorf("%+v", f)
	}
}
