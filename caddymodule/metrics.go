package caddymodule

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-dev/postern/caddymodule/events"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/queue"
	"github.com/postern-dev/postern/caddymodule/serve"
)

// otherDeployment labels requests for names that are not registered: a client
// must not be able to make label values.
const otherDeployment = "_other"

// Collectors are made once and registered anew with each configuration's
// registry, so that a reload keeps the counts. No label ever holds a key or a
// name that a client made up.
var (
	requestsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "postern", Name: "requests_total",
		Help: "Authenticated requests that ended, by deployment, dialect and HTTP status.",
	}, []string{"deployment", "dialect", "code"})

	inflightRequests = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "postern", Name: "inflight_requests",
		Help: "Requests that run now, by deployment and dialect.",
	}, []string{"deployment", "dialect"})

	firstByteSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "postern", Name: "time_to_first_byte_seconds",
		Help:    "Time from the arrival of a request to the first byte of the model's answer.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 180, 600},
	}, []string{"deployment", "dialect"})

	durationSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "postern", Name: "request_duration_seconds",
		Help:    "Time from the arrival of a request to the end of its answer.",
		Buckets: []float64{.01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 180, 600, 1800, 3600},
	}, []string{"deployment", "dialect"})

	authFailuresTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "postern", Name: "auth_failures_total",
		Help: "Requests that were refused for their key: missing, unknown or revoked.",
	}, []string{"reason"})

	signInFailuresTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "postern", Name: "sign_in_failures_total",
		Help: "Sign-ins to the console that failed, by method: password, passkey or link.",
	}, []string{"method"})

	queueRejectedTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "postern", Name: "queue_rejected_total",
		Help: "Requests that found no turn, by reason: the deployment's queue was full, its wait too long (timeout), or the connector had as many as it takes (connector).",
	}, []string{"deployment", "reason"})

	eventsLostTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "postern", Name: "events_lost_total",
		Help: "Events that were not delivered, by reason: handlers or webhook were too slow, a webhook refused them, its configuration had ended.",
	}, []string{"reason"})
)

// countFailedSignIn counts a sign-in that failed.
func countFailedSignIn(method string) { signInFailuresTotal.WithLabelValues(method).Inc() }

func init() {
	// From the start, else the first loss would be no increase.
	for _, reason := range events.LostReasons {
		countLostEvents(reason, 0)
	}
}

// countLostEvents counts events that are lost.
func countLostEvents(reason string, n int) { eventsLostTotal.WithLabelValues(reason).Add(float64(n)) }

// registerMetrics makes the collectors visible on a configuration's registry.
func registerMetrics(reg prometheus.Registerer, g *gateway.Gateway) error {
	for _, c := range []prometheus.Collector{
		requestsTotal, inflightRequests, firstByteSeconds, durationSeconds, authFailuresTotal, signInFailuresTotal, queueRejectedTotal,
		eventsLostTotal,
		tunnelCollector{g},
		queueCollector{g},
		memoryCollector{g},
		deploymentCollector{g},
	} {
		var already prometheus.AlreadyRegisteredError
		if err := reg.Register(c); err != nil && !errors.As(err, &already) {
			return err
		}
	}
	return nil
}

// metrics implements serve.Observer.
type metrics struct{}

func (metrics) Refused(reason string) { authFailuresTotal.WithLabelValues(reason).Inc() }

func (metrics) Running(ex *serve.Exchange, change float64) {
	l := labels(ex)
	inflightRequests.WithLabelValues(l[:]...).Add(change)
}

func (metrics) FirstByte(ex *serve.Exchange) {
	l := labels(ex)
	firstByteSeconds.WithLabelValues(l[:]...).Observe(time.Since(ex.Start).Seconds())
}

func (metrics) Rejected(ex *serve.Exchange, reason string) {
	queueRejectedTotal.WithLabelValues(ex.Deployment, reason).Inc()
}

func (metrics) Ended(ex *serve.Exchange, status int) {
	l := labels(ex)
	requestsTotal.WithLabelValues(l[0], l[1], strconv.Itoa(status)).Inc()
	durationSeconds.WithLabelValues(l[:]...).Observe(time.Since(ex.Start).Seconds())
}

// labels are an exchange's values for the labels deployment and dialect.
func labels(ex *serve.Exchange) [2]string {
	if ex.Deployment == "" {
		return [...]string{otherDeployment, string(ex.Operation.Dialect)}
	}
	return [...]string{ex.Deployment, string(ex.Operation.Dialect)}
}

// dropSeries drops the series of a deployment that was removed, but for
// the gauge: its requests that still run have yet to be subtracted.
func dropSeries(name string) {
	labels := prometheus.Labels{"deployment": name}
	requestsTotal.DeletePartialMatch(labels)
	queueRejectedTotal.DeletePartialMatch(labels)
	firstByteSeconds.DeletePartialMatch(labels)
	durationSeconds.DeletePartialMatch(labels)
}

// tunnelCollector reports the live tunnels, read at each scrape.
type tunnelCollector struct{ *gateway.Gateway }

var (
	tunnelConnections = prometheus.NewDesc("postern_tunnel_connections",
		"Live tunnels, by connector id and transport.", []string{"connector", "transport"}, nil)
	tunnelRTT = prometheus.NewDesc("postern_tunnel_rtt_seconds",
		"Round-trip time of a live tunnel.", []string{"connector", "transport"}, nil)
	tunnelRequests = prometheus.NewDesc("postern_tunnel_requests",
		"Requests that run through a live tunnel.", []string{"connector", "transport"}, nil)
	tunnelRequestsLimit = prometheus.NewDesc("postern_tunnel_requests_limit",
		"How many requests may run through a live tunnel: the connector's max_requests.", []string{"connector", "transport"}, nil)
	upstreamUp = prometheus.NewDesc("postern_upstream_up",
		"Whether a model server is reachable, as its connector reports; without a report there is none.", []string{"connector", "upstream"}, nil)
	deploymentState = prometheus.NewDesc("postern_deployment_state",
		"1 for the state that a deployment is in: available, degraded, model_missing, model_server_down, upstream_missing or offline; accounts' deployments of the same name are added up.",
		[]string{"deployment", "state"}, nil)
)

// Describe implements prometheus.Collector.
func (tunnelCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- tunnelConnections
	ch <- tunnelRTT
	ch <- tunnelRequests
	ch <- tunnelRequestsLimit
	ch <- upstreamUp
}

// Collect implements prometheus.Collector.
func (c tunnelCollector) Collect(ch chan<- prometheus.Metric) {
	hub, err := c.Listener.Hub()
	if err != nil {
		return
	}
	for _, s := range hub.Sessions() {
		ch <- prometheus.MustNewConstMetric(tunnelConnections, prometheus.GaugeValue, 1, s.Connector, s.Transport)
		ch <- prometheus.MustNewConstMetric(tunnelRTT, prometheus.GaugeValue, s.RTT.Seconds(), s.Connector, s.Transport)
		ch <- prometheus.MustNewConstMetric(tunnelRequests, prometheus.GaugeValue, float64(s.Active), s.Connector, s.Transport)
		ch <- prometheus.MustNewConstMetric(tunnelRequestsLimit, prometheus.GaugeValue, float64(s.Limit), s.Connector, s.Transport)
		for _, u := range s.States {
			if !u.Known {
				continue
			}
			up := 0.0
			if u.Reachable {
				up = 1
			}
			ch <- prometheus.MustNewConstMetric(upstreamUp, prometheus.GaugeValue, up, s.Connector, u.Name)
		}
	}
}

// deploymentCollector reports the states of deployments, read at each scrape.
type deploymentCollector struct{ *gateway.Gateway }

// Describe implements prometheus.Collector.
func (deploymentCollector) Describe(ch chan<- *prometheus.Desc) { ch <- deploymentState }

// Collect implements prometheus.Collector.
func (c deploymentCollector) Collect(ch chan<- prometheus.Metric) {
	service, err := c.Manage()
	if err != nil {
		return
	}
	type series struct {
		name  string
		state health.State
	}
	counts := make(map[series]int)
	service.EachDeployment(func(d manage.Deployment) { counts[series{d.Name, d.State}]++ })
	for s, n := range counts {
		ch <- prometheus.MustNewConstMetric(deploymentState, prometheus.GaugeValue, float64(n), s.name, string(s.state))
	}
}

// queueCollector reports how many requests wait, read at each scrape.
type queueCollector struct{ *gateway.Gateway }

var queueLength = prometheus.NewDesc("postern_queue_length",
	"Requests that wait for their turn, by deployment; only deployments with a bound have a queue.", []string{"deployment"}, nil)

// Describe implements prometheus.Collector.
func (queueCollector) Describe(ch chan<- *prometheus.Desc) { ch <- queueLength }

// Collect implements prometheus.Collector. Accounts may have deployments of the
// same name, which are one series.
func (c queueCollector) Collect(ch chan<- prometheus.Metric) {
	open := c.Store.Opened()
	if open == nil {
		return
	}
	lengths := map[string]int{}
	open.Queues.Lengths(func(n queue.Name, waiting int) { lengths[n.Deployment] += waiting })
	for deployment, waiting := range lengths {
		ch <- prometheus.MustNewConstMetric(queueLength, prometheus.GaugeValue, float64(waiting), deployment)
	}
}

// memoryCollector reports the memory budget, read at each scrape.
type memoryCollector struct{ *gateway.Gateway }

var (
	memoryHeld = prometheus.NewDesc("postern_memory_held_bytes",
		"Bytes of the memory budget that requests and answers hold now.", nil, nil)
	memoryLimit = prometheus.NewDesc("postern_memory_limit_bytes",
		"The memory budget of requests and answers, max_memory.", nil, nil)
	memoryRefused = prometheus.NewDesc("postern_memory_refused_total",
		"Requests and answers that the memory budget refused, by reason: full, or share of a key or account.", []string{"reason"}, nil)
)

// Describe implements prometheus.Collector.
func (memoryCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- memoryHeld
	ch <- memoryLimit
	ch <- memoryRefused
}

// Collect implements prometheus.Collector.
func (c memoryCollector) Collect(ch chan<- prometheus.Metric) {
	open := c.Store.Opened()
	if open == nil {
		return
	}
	s := open.Memory.Stats()
	ch <- prometheus.MustNewConstMetric(memoryHeld, prometheus.GaugeValue, float64(s.Held))
	ch <- prometheus.MustNewConstMetric(memoryLimit, prometheus.GaugeValue, float64(s.Total))
	ch <- prometheus.MustNewConstMetric(memoryRefused, prometheus.CounterValue, float64(s.Full), "full")
	ch <- prometheus.MustNewConstMetric(memoryRefused, prometheus.CounterValue, float64(s.OverShare), "share")
}
