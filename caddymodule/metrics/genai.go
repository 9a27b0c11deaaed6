package metrics

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-dev/postern/caddymodule/serve"
)

// The metrics of OpenTelemetry's semantic conventions for generative AI, see docs/metrics.md.
// Their labels are bounded: models are deployments, and error types are classes and statuses.
var (
	genAIDuration = genAIHistogram("gen_ai_server_request_duration_seconds",
		"Time from the arrival of a request to the end of its answer.",
		append(doubled(.01, 14), 163.84, 327.68, 655.36), labelErrorType)
	genAIFirstToken = genAIHistogram("gen_ai_server_time_to_first_token_seconds",
		"Time from when a model server got a request to the first token of its streamed answer.",
		[]float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 30, 60, 120, 300, 600},
		labelErrorType)
	genAIPerToken = genAIHistogram("gen_ai_server_time_per_output_token_seconds",
		"Time per token of a streamed answer after the first one.",
		[]float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5}, labelErrorType)
	genAIUsage = genAIHistogram("gen_ai_client_token_usage",
		"Tokens of a request by type: input, cached_input, output, reasoning.",
		[]float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864},
		"gen_ai_token_type")
	genAIInput  = genAICounter("gen_ai_client_inference_usage_input_tokens_total", "Input tokens.")
	genAIOutput = genAICounter("gen_ai_client_inference_usage_output_tokens_total", "Output tokens.")

	genAI = []prometheus.Collector{genAIDuration, genAIFirstToken, genAIPerToken, genAIUsage, genAIInput, genAIOutput}
)

const (
	labelModel     = "gen_ai_request_model"
	labelErrorType = "error_type"
	modality       = "unknown"
)

// doubled returns n bounds, each twice the one before.
func doubled(first float64, n int) []float64 { return prometheus.ExponentialBuckets(first, 2, n) }

func genAIHistogram(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets},
		[]string{"gen_ai_operation_name", "gen_ai_provider_name", labelModel, label})
}

func genAICounter(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
		[]string{"gen_ai_operation_name", "gen_ai_provider_name", labelModel, "token_modality"})
}

// observeGenAI observes a request that has ended.
func observeGenAI(ex *serve.Exchange, e serve.Ending, took time.Duration) {
	operation, model := ex.Operation.GenAI(), cmp.Or(ex.Deployment, otherDeployment)
	if operation == "" {
		return
	}
	errorType := ""
	if e.Class != "" {
		errorType = serve.ErrorType(e.Class, e.Logged)
	}
	genAIDuration.WithLabelValues(operation, serve.GenAIProvider, model, errorType).Observe(took.Seconds())
	if first := e.FirstToken.Seconds(); first > 0 {
		genAIFirstToken.WithLabelValues(operation, serve.GenAIProvider, model, errorType).Observe(first)
	}
	if e.TokensPerSecond > 0 {
		genAIPerToken.WithLabelValues(operation, serve.GenAIProvider, model, errorType).Observe(1 / e.TokensPerSecond)
	}
}
