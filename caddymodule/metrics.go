package caddymodule

import (
	"cmp"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/events"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/version"
)

// otherDeployment labels requests for unregistered names: clients must not be able
// to create label values.
const otherDeployment = "_other"

// Collectors are created once and registered with each configuration's registry,
// so a reload keeps the counts. Labels never hold keys or names chosen by clients.
var (
	requestsTotal = counter("requests_total",
		"Completed authenticated requests, by deployment, dialect and HTTP status.", "deployment", "dialect", "code")
	inflightRequests = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "postern", Name: "inflight_requests", Help: "Running requests, by deployment and dialect.",
	}, []string{"deployment", "dialect"})
	firstByteSeconds = histogram("time_to_first_byte_seconds",
		"Time from the arrival of a request to the first byte of the model's answer.",
		.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 180, 600)
	durationSeconds = histogram("request_duration_seconds",
		"Time from the arrival of a request to the end of its answer.",
		.01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 180, 600, 1800, 3600)
	authFailuresTotal = counter("auth_failures_total",
		"Requests rejected because of their key, by reason: missing, unknown, revoked, expired, disabled, rotated, "+
			"ip_not_allowed, management_token, tunnel_token, placeholder, quoted, second_bearer or malformed.", "reason")
	signInFailuresTotal = counter("sign_in_failures_total",
		"Failed sign-ins to the console, by method: password, passkey or link.", "method")
	queueRejectedTotal = counter("queue_rejected_total",
		"Requests rejected while queued or instead of being queued, by reason: the deployment's queue was full (full), the "+
			"wait was too long (timeout), or the connector was at its limit (connector).",
		"deployment", "reason")
	limitRejectedTotal = counter("limit_rejected_total",
		"Requests that a limit of a key or an account has refused, by limit and level (key or account).", "limit", "level")
	limitWaitSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "postern", Name: "limit_wait_seconds",
		Help:    "Time that requests had to wait for limits of a key or an account.",
		Buckets: []float64{.1, .5, 1, 2.5, 5, 10, 15, 30, 60},
	})
	queueWaitSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "postern", Name: "queue_wait_seconds",
		Help:    "Time that queued requests waited for their turn or in vain, by deployment.",
		Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600},
	}, []string{"deployment"})
	upstreamErrorsTotal = counter("upstream_errors_total",
		"Requests that a connector or its model server failed, by deployment and error code.",
		"deployment", "class")
	buildInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "postern", Name: "build_info", Help: "Build information; always 1.",
	}, []string{"version", "goversion"})
	barrierSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "postern", Name: "barrier_seconds",
		Help: "Time that writes such as a revocation waited until no edge of the cluster acts on the state before, by " +
			"result: confirmed, or unconfirmed.",
		Buckets: []float64{.002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
	}, []string{"result"})
	tokensTotal = counter("tokens_total",
		"Tokens by deployment, type (input, cached_input, output, reasoning) and source: counted by the model server "+
			"(upstream), or estimated (estimate). Cached input is part of the input, reasoning part of the output.",
		"deployment", "type", "source")
	panicsTotal = prometheus.NewCounterFunc(prometheus.CounterOpts{
		Namespace: "postern", Name: "panics_total",
		Help: "Panics that ended one request, tunnel or item of work, and not the process. Each is a defect: the log has " +
			"its stack.",
	}, func() float64 { return float64(panics.Total()) })
	eventsLostTotal = counter("events_lost_total",
		"Events that were not delivered, by reason: handlers or a webhook were too slow (handlers, webhook), a webhook's "+
			"receiver rejected them (refused), or the webhook's configuration had ended (ended).", "reason")
)

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "postern", Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets ...float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "postern", Name: name, Help: help, Buckets: buckets,
	}, []string{"deployment", "dialect"})
}

// countFailedSignIn counts a sign-in that failed.
func countFailedSignIn(method string) { signInFailuresTotal.WithLabelValues(method).Inc() }

// observeBarrier counts a write that all edges had to confirm.
func observeBarrier(took time.Duration, confirmed bool) {
	result := "confirmed"
	if !confirmed {
		result = "unconfirmed"
	}
	barrierSeconds.WithLabelValues(result).Observe(took.Seconds())
}

// countLostEvents counts lost events.
func countLostEvents(reason string, n int) { eventsLostTotal.WithLabelValues(reason).Add(float64(n)) }

// registerMetrics registers the collectors with a configuration's registry.
func registerMetrics(reg prometheus.Registerer, g *gateway.Gateway, keys bool) error {
	for _, reason := range events.LostReasons {
		countLostEvents(reason, 0) // otherwise the first loss would not show as an increase
	}
	for _, method := range [...]string{"password", "passkey", "link"} {
		signInFailuresTotal.WithLabelValues(method).Add(0) // for the same reason
	}
	buildInfo.WithLabelValues(version.Number(), runtime.Version()).Set(1)
	for _, c := range append(collectors(), live{g, keys}) {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// collectors returns what is counted. See [live] for the other metrics.
func collectors() []prometheus.Collector {
	return append([]prometheus.Collector{
		requestsTotal, inflightRequests, firstByteSeconds, durationSeconds, authFailuresTotal, signInFailuresTotal,
		queueRejectedTotal,
		eventsLostTotal, barrierSeconds, tokensTotal, limitRejectedTotal, limitWaitSeconds, queueWaitSeconds,
		upstreamErrorsTotal, buildInfo, keyTokensTotal, panicsTotal,
	}, genAI...)
}

// metrics implements serve.Observer.
type metrics struct {
	keys bool // key_metrics
}

func (metrics) Refused(reason string) { authFailuresTotal.WithLabelValues(reason).Inc() }

func (metrics) Running(ex *serve.Exchange, change float64) {
	inflightRequests.WithLabelValues(labels(ex)).Add(change)
}

func (metrics) FirstByte(ex *serve.Exchange) {
	firstByteSeconds.WithLabelValues(labels(ex)).Observe(time.Since(ex.Start).Seconds())
}

func (metrics) Rejected(ex *serve.Exchange, reason string) {
	queueRejectedTotal.WithLabelValues(ex.Deployment, reason).Inc()
}

func (metrics) Limited(s limits.State) {
	limitRejectedTotal.WithLabelValues(s.Limit, s.Of).Inc()
}

func (metrics) LimitWaited(d time.Duration) { limitWaitSeconds.Observe(d.Seconds()) }

func (metrics) Queued(ex *serve.Exchange, waited time.Duration) {
	queueWaitSeconds.WithLabelValues(ex.Deployment).Observe(waited.Seconds())
}

func (metrics) Ended(ex *serve.Exchange, e serve.Ending) {
	deployment, api := labels(ex)
	took := time.Since(ex.Start)
	requestsTotal.WithLabelValues(deployment, api, strconv.Itoa(e.Status)).Inc()
	durationSeconds.WithLabelValues(deployment, api).Observe(took.Seconds())
	if e.Class == dialect.ClassUpstream {
		upstreamErrorsTotal.WithLabelValues(deployment, e.Kind.Code()).Inc()
	}
	observeGenAI(ex, e, took)
}

// labels returns an exchange's values for the labels deployment and dialect.
func labels(ex *serve.Exchange) (deployment, dialect string) {
	return cmp.Or(ex.Deployment, otherDeployment), string(ex.Operation.Dialect)
}

// dropSeries drops the series of a removed deployment except the gauge, from
// which running requests must still be subtracted.
func dropSeries(name string) {
	for _, c := range collectors() {
		vec, ok := c.(interface{ DeletePartialMatch(prometheus.Labels) int })
		if ok && c != inflightRequests {
			vec.DeletePartialMatch(prometheus.Labels{"deployment": name})
			vec.DeletePartialMatch(prometheus.Labels{labelModel: name})
		}
	}
}

// live collects what is read at each scrape: tunnels, deployment states, queues
// and the memory budget. Parts that have not started yet are left out.
type live struct {
	*gateway.Gateway
	keys bool // key_metrics
}

var (
	tunnelConnections = describe("tunnel_connections", "Live tunnels, by connector id and transport.", "connector",
		"transport")
	tunnelRTT           = describe("tunnel_rtt_seconds", "Round-trip time of a live tunnel.", "connector", "transport")
	tunnelRequests      = describe("tunnel_requests", "Running requests of a live tunnel.", "connector", "transport")
	tunnelRequestsLimit = describe("tunnel_requests_limit",
		"Maximum number of running requests of a live tunnel: the connector's max_requests.", "connector", "transport")
	upstreamUp = describe("upstream_up",
		"Whether a model server is reachable according to its connector. Absent until the connector reports it.",
		"connector", "upstream")
	deploymentState = describe("deployment_state",
		"1 for the current state of a deployment: available, degraded, model_missing, model_server_down, upstream_missing "+
			"or offline. Deployments of the same name in several accounts are summed.",
		"deployment", "state")
	queueLength = describe("queue_length",
		"Queued requests, by deployment. Only deployments with a limit have a queue.", "deployment")
	storeReachable = describe("store_reachable",
		"Whether the store is open and current and, in a cluster, whether this edge has contact to it.")
	storeContact = describe("store_contact_age_seconds",
		"Time since this edge of a cluster last had contact to the store, 0 while it has contact.")
	edgeLeader = describe("edge_leader", "Whether this edge has the duties that one edge of the cluster fulfills for all.")
	edgeStates = describe("edges",
		"Edges of the cluster, by state: serving, draining, without_store, lost or unknown.", "state")
	memoryHeld    = describe("memory_held_bytes", "Bytes of the memory budget currently held by requests and answers.")
	memoryLimit   = describe("memory_limit_bytes", "The memory budget of requests and answers, max_memory.")
	memoryRefused = describe("memory_refused_total",
		"Requests and answers rejected by the memory budget, by reason: the budget is full (full), or a key or account has "+
			"used its share (share).", "reason")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("postern_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector. It announces nothing, as the metrics
// depend on what has started.
func (live) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (l live) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	if hub, err := l.Listener.Hub(); err == nil {
		collectTunnels(hub.Sessions(), gauge)
	}
	if service, err := l.Manage(); err == nil {
		states := make(map[[2]string]int)
		service.EachDeployment(func(d manage.Deployment) { states[[...]string{d.Name, string(d.State)}]++ })
		for labels, n := range states {
			gauge(deploymentState, float64(n), labels[:]...)
		}
	}
	open := l.Store.Opened()
	gauge(storeReachable, is[open != nil && open.Store.Serving() == nil && open.Store.InContact()])
	if open == nil {
		return
	}
	if open.Cluster != nil {
		l.collectEdges(open.Cluster, gauge)
	}
	lengths := map[string]int{} // accounts' deployments of the same name are one series
	open.Queues.Lengths(func(n queue.Name, waiting int) { lengths[n.Deployment] += waiting })
	for deployment, waiting := range lengths {
		gauge(queueLength, float64(waiting), deployment)
	}
	if l.keys {
		collectQuotas(open, gauge)
	}
	s := open.Memory.Stats()
	gauge(memoryHeld, float64(s.Held))
	gauge(memoryLimit, float64(s.Total))
	ch <- prometheus.MustNewConstMetric(memoryRefused, prometheus.CounterValue, float64(s.Full), "full")
	ch <- prometheus.MustNewConstMetric(memoryRefused, prometheus.CounterValue, float64(s.OverShare), "share")
}

// is returns the values of gauges that are 1 or 0.
var is = map[bool]float64{true: 1}

// lastContact returns when this edge last had contact to the store, zero while it has.
func lastContact(edge gateway.Cluster) time.Time { return edge.Contact(edge.Name()).Last }

// collectEdges collects the metrics of a cluster.
func (l live) collectEdges(edge gateway.Cluster, gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	service, err := l.Manage()
	if err != nil {
		return
	}
	age := 0.0
	if last := lastContact(edge); !last.IsZero() {
		age = time.Since(last).Seconds()
	}
	gauge(storeContact, age)
	gauge(edgeLeader, is[edge.Leader()])
	states := map[string]int{}
	for _, e := range service.AllEdges() {
		states[e.State]++
	}
	for _, state := range manage.EdgeStates {
		gauge(edgeStates, float64(states[state]), state)
	}
}

func collectTunnels(sessions []tunnel.Info, gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	for _, s := range sessions {
		if s.AtPeer {
			continue // its gateway counts it
		}
		gauge(tunnelConnections, 1, s.Connector, s.Transport)
		gauge(tunnelRTT, s.RTT.Seconds(), s.Connector, s.Transport)
		gauge(tunnelRequests, float64(s.Own), s.Connector, s.Transport)
		gauge(tunnelRequestsLimit, float64(s.Limit), s.Connector, s.Transport)
		for _, u := range s.States {
			switch {
			case u.Known && u.Reachable:
				gauge(upstreamUp, 1, s.Connector, u.Name)
			case u.Known:
				gauge(upstreamUp, 0, s.Connector, u.Name)
			}
		}
	}
}
