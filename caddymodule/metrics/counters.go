package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-dev/postern/connector/panics"
)

// otherDeployment labels requests for unregistered names: clients must not be able
// to create label values.
const otherDeployment = "_other"

// Collectors are created once and registered with each configuration's registry,
// so a reload keeps the counts. Labels never contain keys or names chosen by clients.
var (
	requestsTotal = counter("requests_total",
		"Completed authenticated requests, by HTTP status and outcome: ok, failed, refused or client (whose fault it is).",
		"deployment", "dialect", "code", "outcome")
	inflightRequests = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "postern", Name: "inflight_requests", Help: "Running and queued requests, by deployment and dialect.",
	}, []string{"deployment", "dialect"})
	firstByteSeconds = histogram("time_to_first_byte_seconds",
		"Time from the arrival of a request to the first byte of the model's answer.",
		.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 180, 600)
	firstTokenSeconds = histogram("time_to_first_token_seconds",
		"Time from when a model server got a request to the first token of its streamed answer.",
		.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60, 120, 300, 600)
	perTokenSeconds = histogram("time_per_output_token_seconds",
		"Time per token of a streamed answer after the first one.",
		.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5)
	durationSeconds = histogram("request_duration_seconds",
		"Time from the arrival of a request to the end of its answer.",
		.01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 180, 600, 1800, 3600)
	authFailuresTotal = counter("auth_failures_total",
		"Requests rejected because of their key, by reason: missing, unknown, revoked, expired, disabled, rotated, "+
			"not_in_group, ip_not_allowed, management_token, tunnel_token, placeholder, quoted, second_bearer or "+
			"malformed.", "reason")
	signInFailuresTotal = counter("sign_in_failures_total",
		"Failed sign-ins to the console, by method: password, passkey, link or issuer.", "method")
	queueRejectedTotal = counter("queue_rejected_total",
		"Requests rejected while queued or instead of being queued, by reason: the deployment's queue was full (full), or "+
			"the wait was too long (timeout).",
		"deployment", "reason")
	limitRejectedTotal = counter("limit_rejected_total",
		"Requests that a limit has refused, by limit and level (key, group or account).", "limit", "level")
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
		Help: "Time that writes such as a revocation waited until no edge of the cluster acted on the former state, " +
			"by result: confirmed, or unconfirmed.",
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
