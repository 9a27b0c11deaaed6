package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/limits"
)

// maxKeySeries bounds the keys with series of their own. All other keys share those of otherKey.
const (
	maxKeySeries = 1000
	otherKey     = "_other"
)

// Only with key_metrics.
var (
	keyTokensTotal = counter("key_tokens_total",
		"Tokens by key id and type (input, output); only with key_metrics, and for 1,000 keys at most. "+
			"The others are _other.", "key_id", "type")
	keyQuotaUsed = describe("key_quota_used_ratio",
		"Used part of a limit per day or month of a key with recent requests, by key id and limit; only with key_metrics, "+
			"and at the edge that counts the limits.",
		"key_id", "limit")

	keySeriesLock sync.Mutex
	keySeries     = map[string]bool{} // the ids of keys with series
)

// countKeyTokens counts the tokens of a request for its key.
func countKeyTokens(id string, u dialect.Usage) {
	keySeriesLock.Lock()
	defer keySeriesLock.Unlock()
	if !keySeries[id] {
		if len(keySeries) >= maxKeySeries {
			id = otherKey
		} else {
			keySeries[id] = true
		}
	}
	keyTokensTotal.WithLabelValues(id, "input").Add(float64(u.PromptTokens))
	keyTokensTotal.WithLabelValues(id, "output").Add(float64(u.CompletionTokens))
}

// DropKey drops the series of a revoked or removed key.
func DropKey(id string) {
	keySeriesLock.Lock()
	defer keySeriesLock.Unlock()
	if keySeries[id] {
		delete(keySeries, id)
		keyTokensTotal.DeletePartialMatch(prometheus.Labels{"key_id": id})
	}
}

// collectQuotas collects how much of their limits keys have used.
func collectQuotas(open *gateway.Services, gauge emit) {
	keys := 0
	open.Limiter.Quotas(func(key string, states []limits.State) bool {
		for _, s := range states {
			gauge(keyQuotaUsed, float64(s.Used)/float64(s.Max), key, s.Limit)
		}
		keys++
		return keys < maxKeySeries
	})
}
