package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/tests/rig/freeport"
)

func TestMetricsText(t *testing.T) {
	var b strings.Builder
	buckets := make([]uint64, len(agent.DurationBounds))
	buckets[len(buckets)-1] = 2
	writeMetrics(&b, agent.Status{
		State:  agent.StateOnline,
		Tunnel: &agent.TunnelStatus{Transport: "quic", RTT: 20 * time.Millisecond}, Tunnels: 3,
		Upstreams: []agent.UpstreamStatus{{
			Name: "box", Running: 1, Results: map[string]uint64{"5xx": 1, "2xx": 4},
			Seconds: 1.5, Answered: 5, Buckets: buckets,
		}},
	}, time.Unix(1700000000, 0))
	for _, want := range []string{
		"# TYPE postern_connector_up gauge\npostern_connector_up 1\n",
		"postern_connector_start_time_seconds 1.7e+09\n",
		"postern_connector_tunnels_total 3\n",
		"postern_connector_tunnel_rtt_seconds{transport=\"quic\"} 0.02\n",
		"postern_connector_requests_running{upstream=\"box\"} 1\n",
		"postern_connector_requests_total{upstream=\"box\",result=\"2xx\"} " +
			"4\npostern_connector_requests_total{upstream=\"box\",result=\"5xx\"} 1\n",
		"postern_connector_request_duration_seconds_bucket{upstream=\"box\",le=\"600\"} " +
			"2\npostern_connector_request_duration_seconds_bucket{upstream=\"box\",le=\"+Inf\"} 5\n",
		"postern_connector_request_duration_seconds_sum{upstream=\"box\"} " +
			"1.5\npostern_connector_request_duration_seconds_count{upstream=\"box\"} 5\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &b)
		}
	}
	valid := regexp.MustCompile(`^(# (HELP|TYPE) \S+ .+|[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? \S+)$`)
	for line := range strings.SplitSeq(strings.TrimSuffix(b.String(), "\n"), "\n") {
		if !valid.MatchString(line) {
			t.Errorf("%q is not of the format", line)
		}
	}
	if got := labelValue.Replace("a\"b\\c\nd"); got != `a\"b\\c\nd` {
		t.Errorf("quoted as %s", got)
	}
}

func TestMetricsListen(t *testing.T) {
	listener, err := freeport.Listen()
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	h := newHome(t)
	if code, _, stderr := h.run(t.Context(), "run", "--config", h.config, "--metrics-listen",
		address); code != exitRuntime || !strings.Contains(stderr.String(), "--metrics-listen: ") {
		t.Errorf("a port that is taken: code %d, %s", code, stderr)
	}
	listener.Close()
	if code, _, stderr := h.run(t.Context(), "run", "--config", h.config, "--metrics-listen",
		"9464"); code != exitUsage || !strings.Contains(stderr.String(), "like 127.0.0.1:9464") {
		t.Errorf("no address: code %d, %s", code, stderr)
	}
	h.start("--metrics-listen", address)
	get := func(path string) (int, string) {
		t.Helper()
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body)
	}
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/healthz": {200, `"status": "ok"`},
		"/readyz":  {503, "connecting to 127.0.0.1:1"},
		"/metrics": {200, "postern_connector_up 0\n"},
		"/status":  {404, ""},
	} {
		if status, text := get(path); status != want.status || !strings.Contains(text, want.text) ||
			strings.Contains(text, testToken.Secret) {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}
