package main

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/upstream"
	"github.com/postern-dev/postern/connector/version"
)

// openMetrics opens the port for health checks and metrics, if one is configured.
func (r *runner) openMetrics() (net.Listener, error) {
	address := r.options.metrics
	if address == "" {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen: %q must be host:port, like 127.0.0.1:9464", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, failed(fmt.Errorf("--metrics-listen: %w; choose another port, or stop the program that uses it", err))
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		r.logger.Warn("the metrics can be read from the network; use 127.0.0.1 in --metrics-listen to keep them on this "+
			"machine", "address", address)
	}
	r.logger.Info("serving metrics", "address", listener.Addr().String())
	return listener, nil
}

// metricsHandler serves health checks and metrics. Its answers contain neither names
// of models nor contents of requests.
//
//	/healthz   200: the process is alive
//	/readyz    200: the tunnel is up; 503 otherwise, with the reason
//	/metrics   for Prometheus
func (r *runner) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		r.agent.Status() // blocks if the agent is stuck
		writeJSON(w, http.StatusOK, healthAnswer{Status: "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		s := r.agent.Status()
		status, answer := http.StatusOK, healthAnswer{Status: string(s.State)}
		if s.State != agent.StateOnline {
			status, answer.Reason = http.StatusServiceUnavailable, oneLine(s)
		}
		writeJSON(w, status, answer)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		writeMetrics(w, r.agent.Status(), r.started)
	})
	return mux
}

// healthAnswer answers a health check.
type healthAnswer struct {
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
}

// writeMetrics writes the Prometheus text format, version 0.0.4. The client library
// would double the size of the program.
func writeMetrics(w io.Writer, s agent.Status, started time.Time) {
	var b strings.Builder
	family := func(name, kind, help string) {
		fmt.Fprintf(&b, "# HELP postern_connector_%s %s\n# TYPE postern_connector_%s %s\n", name, help, name, kind)
	}
	sample := func(name string, value float64, labels ...string) {
		b.WriteString("postern_connector_" + name + labelList(labels) + " " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
	}
	single := func(name, kind, help string, value float64, labels ...string) {
		family(name, kind, help)
		sample(name, value, labels...)
	}
	single("build_info", "gauge", "Build information; always 1.", 1, "version", version.Number(), "goversion",
		runtime.Version())
	single("start_time_seconds", "gauge", "Start time of the process, as Unix time.", float64(started.UnixMilli())/1000)
	single("up", "gauge", "Whether the tunnel is up.", map[bool]float64{true: 1}[s.State == agent.StateOnline])
	single("tunnels_total", "counter", "Tunnels established.", float64(s.Tunnels))
	family("tunnel_rtt_seconds", "gauge", "Round trip time to the gateway.")
	if s.Tunnel != nil && len(s.Legs) == 0 {
		sample("tunnel_rtt_seconds", s.Tunnel.RTT.Seconds(), "transport", s.Tunnel.Transport)
	}
	for _, l := range s.Legs {
		if l.Tunnel != nil {
			sample("tunnel_rtt_seconds", l.Tunnel.RTT.Seconds(), "transport", l.Tunnel.Transport, "edge", l.Edge)
		}
	}
	family("upstream_up", "gauge", "Whether the model server is reachable; absent while unknown.")
	for _, u := range s.Upstreams {
		if u.State != upstream.StateUnknown {
			sample("upstream_up", map[bool]float64{true: 1}[u.State == upstream.StateReachable], "upstream", u.Name)
		}
	}
	family("requests_running", "gauge", "Requests in progress.")
	for _, u := range s.Upstreams {
		sample("requests_running", float64(u.Running), "upstream", u.Name)
	}
	family("requests_total", "counter", "Requests by result: class of status, or a reason.")
	for _, u := range s.Upstreams {
		for _, result := range slices.Sorted(maps.Keys(u.Results)) {
			sample("requests_total", float64(u.Results[result]), "upstream", u.Name, "result", result)
		}
	}
	family("request_duration_seconds", "histogram", "Duration of answered requests, to the end of the answer.")
	for _, u := range s.Upstreams {
		for i, bound := range agent.DurationBounds {
			sample("request_duration_seconds_bucket", float64(u.Buckets[i]), "upstream", u.Name, "le",
				strconv.FormatFloat(bound, 'g', -1, 64))
		}
		sample("request_duration_seconds_bucket", float64(u.Answered), "upstream", u.Name, "le", "+Inf")
		sample("request_duration_seconds_sum", u.Seconds, "upstream", u.Name)
		sample("request_duration_seconds_count", float64(u.Answered), "upstream", u.Name)
	}
	single("panics_total", "counter",
		"Panics that ended one request, tunnel or check, and not the process. Each is a defect.", float64(panics.Total()))
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	single("memory_bytes", "gauge", "Memory obtained from the system.", float64(memory.Sys-memory.HeapReleased))
	single("goroutines", "gauge", "Number of goroutines.", float64(runtime.NumGoroutine()))
	_, _ = io.WriteString(w, b.String()) // the client may be gone
}

var labelValue = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// labelList returns names and values of labels in braces, "" without labels.
func labelList(labels []string) string {
	list := ""
	for i := 0; i+1 < len(labels); i += 2 {
		list += string("{,"[min(i, 1)]) + labels[i] + `="` + labelValue.Replace(labels[i+1]) + `"`
	}
	if list != "" {
		list += "}"
	}
	return list
}
