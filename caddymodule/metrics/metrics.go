// Package metrics contains the metrics of the gateway, for Prometheus.
package metrics

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
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/connector/version"
)

// Counters counts events of a store.
var Counters = gateway.Counters{
	SignInFailed: func(method string) { signInFailuresTotal.WithLabelValues(method).Inc() },
	EventsLost:   CountLostEvents,
	Waited:       observeBarrier,
}

// observeBarrier counts a write that all edges had to confirm.
func observeBarrier(took time.Duration, confirmed bool) {
	result := "confirmed"
	if !confirmed {
		result = "unconfirmed"
	}
	barrierSeconds.WithLabelValues(result).Observe(took.Seconds())
}

// CountLostEvents counts lost events.
func CountLostEvents(reason string, n int) { eventsLostTotal.WithLabelValues(reason).Add(float64(n)) }

// Register registers the metrics with a configuration's registry. keys is the option key_metrics.
func Register(reg prometheus.Registerer, g *gateway.Gateway, keys bool) error {
	for _, reason := range events.LostReasons {
		CountLostEvents(reason, 0) // otherwise the first loss would not show as an increase
	}
	for _, method := range [...]string{"password", "passkey", "link", "issuer"} {
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

// collectors returns the collectors that count and observe. See [live] for the other metrics.
func collectors() []prometheus.Collector {
	return []prometheus.Collector{
		requestsTotal, inflightRequests, firstByteSeconds, firstTokenSeconds, perTokenSeconds, durationSeconds,
		authFailuresTotal, signInFailuresTotal, queueRejectedTotal, eventsLostTotal, barrierSeconds, tokensTotal,
		limitRejectedTotal, queueWaitSeconds, upstreamErrorsTotal, buildInfo, keyTokensTotal, panicsTotal,
	}
}

// Observer implements serve.Observer.
type Observer struct {
	Keys bool // count the tokens of each key: the option key_metrics
}

func (Observer) Refused(reason string) { authFailuresTotal.WithLabelValues(reason).Inc() }

func (Observer) Running(ex *serve.Exchange, change float64) {
	inflightRequests.WithLabelValues(labels(ex)).Add(change)
}

func (Observer) FirstByte(ex *serve.Exchange) {
	firstByteSeconds.WithLabelValues(labels(ex)).Observe(time.Since(ex.Start).Seconds())
}

func (Observer) Rejected(ex *serve.Exchange, reason string) {
	queueRejectedTotal.WithLabelValues(ex.Deployment, reason).Inc()
}

func (Observer) Limited(s limits.State) {
	limitRejectedTotal.WithLabelValues(s.Limit, s.Of).Inc()
}

func (Observer) Queued(ex *serve.Exchange, waited time.Duration) {
	queueWaitSeconds.WithLabelValues(ex.Deployment).Observe(waited.Seconds())
}

func (Observer) Ended(ex *serve.Exchange, e serve.Ending) {
	deployment, api := labels(ex)
	requestsTotal.WithLabelValues(deployment, api, strconv.Itoa(e.Status), string(ex.Outcome)).Inc()
	durationSeconds.WithLabelValues(deployment, api).Observe(time.Since(ex.Start).Seconds())
	if e.Class == dialect.ClassUpstream {
		upstreamErrorsTotal.WithLabelValues(deployment, e.Kind.Code()).Inc()
	}
	if e.FirstToken > 0 {
		firstTokenSeconds.WithLabelValues(deployment, api).Observe(e.FirstToken.Seconds())
	}
	if e.TokensPerSecond > 0 {
		perTokenSeconds.WithLabelValues(deployment, api).Observe(1 / e.TokensPerSecond)
	}
}

// Counted implements serve.Observer.
func (o Observer) Counted(ex *serve.Exchange, u dialect.Usage) {
	deployment, _ := labels(ex)
	source := "upstream"
	if u.Estimated {
		source = "estimate"
	}
	for _, n := range [...]struct {
		kind   string
		tokens int64
	}{
		{"input", u.PromptTokens},
		{"cached_input", u.CachedTokens},
		{"output", u.CompletionTokens},
		{"reasoning", u.ReasoningTokens},
	} {
		if n.tokens > 0 {
			tokensTotal.WithLabelValues(deployment, n.kind, source).Add(float64(n.tokens))
		}
	}
	if o.Keys && ex.Key.ID() != "" && u.PromptTokens+u.CompletionTokens > 0 {
		countKeyTokens(ex.Key.ID(), u)
	}
}

// labels returns an exchange's values for the labels deployment and dialect.
func labels(ex *serve.Exchange) (deployment, dialect string) {
	return cmp.Or(ex.Deployment, otherDeployment), string(ex.Operation.Dialect)
}

// DropDeployment drops the series of a removed deployment except the gauge, from which running
// requests must still be subtracted.
func DropDeployment(name string) {
	for _, c := range collectors() {
		vec, ok := c.(interface{ DeletePartialMatch(prometheus.Labels) int })
		if ok && c != inflightRequests {
			vec.DeletePartialMatch(prometheus.Labels{"deployment": name})
		}
	}
}
