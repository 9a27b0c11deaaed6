package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/upstream"
	"github.com/postern-dev/postern/connector/version"
)

// listenMetrics opens the port for health checks and metrics, which is off by
// default. It has no names of models and nothing of what requests say.
//
//	/healthz   200: the process works
//	/readyz    200: the tunnel is up; 503 otherwise, with the reason
//	/metrics   for Prometheus
func (r *runner) listenMetrics() (stop func(), err error) {
	address := r.options.metrics
	if address == "" {
		return func() {}, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("--metrics-listen: %q must be host:port, like 127.0.0.1:9464", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &runtimeError{fmt.Errorf("--metrics-listen: %w; choose another port, or stop who has it", err)}
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		r.logger.Warn("others on the network can read the metrics; use 127.0.0.1 in --metrics-listen to keep them on this machine", "address", address)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		r.agent.Status() // what hangs would hang here
		writeJSON(w, http.StatusOK, health{Status: "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		s := r.agent.Status()
		if s.State != agent.StateOnline {
			writeJSON(w, http.StatusServiceUnavailable, health{Status: string(s.State), Reason: oneLine(s)})
			return
		}
		writeJSON(w, http.StatusOK, health{Status: string(s.State)})
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		writeMetrics(w, r.agent.Status(), r.started)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.logger.Error("failed to serve metrics", "error", err)
		}
	}()
	r.logger.Info("serving metrics", "address", listener.Addr().String())
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
		<-done
	}, nil
}

// health answers a health check.
type health struct {
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
}

// writeMetrics writes Prometheus' text format, version 0.0.4. Its client library
// would double the size of the program.
func writeMetrics(w io.Writer, s agent.Status, started time.Time) {
	var b strings.Builder
	family := func(name, kind, help string) {
		fmt.Fprintf(&b, "# HELP postern_connector_%s %s\n# TYPE postern_connector_%s %s\n", name, help, name, kind)
	}
	sample := func(name string, value float64, labels ...string) {
		b.WriteString("postern_connector_" + name)
		for i := 0; i+1 < len(labels); i += 2 {
			b.WriteString(string("{,"[min(i, 1)]) + labels[i] + "=" + labelValue(labels[i+1]))
		}
		if len(labels) > 0 {
			b.WriteByte('}')
		}
		b.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
	}
	family("build_info", "gauge", "The program; always 1.")
	sample("build_info", 1, "version", version.Number(), "goversion", runtime.Version())
	family("start_time_seconds", "gauge", "When the process began, as Unix time.")
	sample("start_time_seconds", float64(started.UnixMilli())/1000)
	family("up", "gauge", "Whether the tunnel is up.")
	online := 0.0
	if s.State == agent.StateOnline {
		online = 1
	}
	sample("up", online)
	family("tunnels_total", "counter", "Tunnels that were up.")
	sample("tunnels_total", float64(s.Tunnels))
	family("tunnel_rtt_seconds", "gauge", "Round trip time to the gateway.")
	if s.Tunnel != nil {
		sample("tunnel_rtt_seconds", s.Tunnel.RTT.Seconds(), "transport", s.Tunnel.Transport)
	}
	family("upstream_up", "gauge", "Whether the model server is reachable; without an entry it is not known.")
	for _, u := range s.Upstreams {
		switch u.State {
		case upstream.StateReachable:
			sample("upstream_up", 1, "upstream", u.Name)
		case upstream.StateDown:
			sample("upstream_up", 0, "upstream", u.Name)
		}
	}
	family("requests_running", "gauge", "Requests under way.")
	for _, u := range s.Upstreams {
		sample("requests_running", float64(u.Running), "upstream", u.Name)
	}
	family("requests_total", "counter", "Requests by how they ended: class of status, or a reason.")
	for _, u := range s.Upstreams {
		for _, result := range sortedKeys(u.Results) {
			sample("requests_total", float64(u.Results[result]), "upstream", u.Name, "result", result)
		}
	}
	family("request_duration_seconds", "histogram", "Durations of answers, to their end.")
	for _, u := range s.Upstreams {
		for i, bound := range agent.DurationBounds {
			sample("request_duration_seconds_bucket", float64(u.Buckets[i]), "upstream", u.Name, "le", strconv.FormatFloat(bound, 'g', -1, 64))
		}
		sample("request_duration_seconds_bucket", float64(u.Answered), "upstream", u.Name, "le", "+Inf")
		sample("request_duration_seconds_sum", u.Seconds, "upstream", u.Name)
		sample("request_duration_seconds_count", float64(u.Answered), "upstream", u.Name)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	family("memory_bytes", "gauge", "Memory that the program has from the system.")
	sample("memory_bytes", float64(memory.Sys-memory.HeapReleased))
	family("goroutines", "gauge", "Goroutines.")
	sample("goroutines", float64(runtime.NumGoroutine()))
	_, _ = io.WriteString(w, b.String()) // the client may be gone
}

// labelValue quotes a label's value.
func labelValue(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(s) + `"`
}

func sortedKeys(m map[string]uint64) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
