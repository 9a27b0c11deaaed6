package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// monthOnly is the layout of the months of usage rows.
const monthOnly = "2006-01"

// UsageRow is the usage of a key with a deployment, through one gateway on a day, or through
// all gateways in a month that is folded.
type UsageRow struct {
	Account    string `json:"-"`
	Day        string `json:"-"` // in UTC, like 2026-11-21; like 2026-08 for a month
	Key        string `json:"-"` // id; "": requests without a key
	Deployment string `json:"-"` // registered name; "": requests without one
	KeyName    string `json:"key_name"`
	Usage
}

// Usage has sums over requests.
type Usage struct {
	// Requests are all requests with a valid key. Those that reached no model have no tokens.
	Requests int64 `json:"requests"`
	// CallerErrors are requests that failed because of the client: an invalid request, or a
	// client that left before the end.
	CallerErrors int64 `json:"caller_errors"`
	// PolicyErrors are requests that the gateway refused: limits, a full queue, a revoked key.
	PolicyErrors int64 `json:"policy_errors"`
	// GatewayErrors are requests that failed because of the gateway.
	GatewayErrors int64 `json:"gateway_errors"`
	// UpstreamErrors are requests that failed because of the connector or the model server.
	UpstreamErrors int64 `json:"upstream_errors"`
	InputTokens    int64 `json:"input_tokens"`
	// CachedTokens are the input tokens that the model server had in a cache.
	CachedTokens int64 `json:"cached_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	// ReasoningTokens are the output tokens for reasoning.
	ReasoningTokens int64 `json:"reasoning_tokens"`
	// EstimatedRequests are requests whose tokens the model server did not count.
	EstimatedRequests int64 `json:"estimated_requests"`
	// EstimatedTokens are the input and output tokens of these requests.
	EstimatedTokens int64 `json:"estimated_tokens"`
	// BusyMillis is the time from sending requests to model servers to the end of their answers.
	BusyMillis int64 `json:"busy_ms"`
	// FirstTokens are streamed answers that have begun.
	FirstTokens int64 `json:"first_tokens"`
	// FirstTokenMillis is the time from requests to the first tokens of these answers.
	FirstTokenMillis int64 `json:"first_token_ms"`
}

// Add adds other sums.
func (u *Usage) Add(o Usage) {
	u.Requests += o.Requests
	u.CallerErrors += o.CallerErrors
	u.PolicyErrors += o.PolicyErrors
	u.GatewayErrors += o.GatewayErrors
	u.UpstreamErrors += o.UpstreamErrors
	u.InputTokens += o.InputTokens
	u.CachedTokens += o.CachedTokens
	u.OutputTokens += o.OutputTokens
	u.ReasoningTokens += o.ReasoningTokens
	u.EstimatedRequests += o.EstimatedRequests
	u.EstimatedTokens += o.EstimatedTokens
	u.BusyMillis += o.BusyMillis
	u.FirstTokens += o.FirstTokens
	u.FirstTokenMillis += o.FirstTokenMillis
}

// Errors returns the number of requests that failed.
func (u Usage) Errors() int64 {
	return u.CallerErrors + u.PolicyErrors + u.GatewayErrors + u.UpstreamErrors
}

type usageRecord struct {
	header
	UsageRow
}

// path returns the KV key of a row of an edge. The edge of a month is "". The name of the
// deployment is last, as it may contain slashes.
func (r *UsageRow) path(edge string) string {
	return dirUsage + r.Account + "/" + r.Day + "/" + r.Key + "/" + edge + "/" + r.Deployment
}

// usageAt returns the row of a KV key without its sums, and its edge.
func usageAt(path string) (r UsageRow, edge string, ok bool) {
	const parts = 5
	at := strings.SplitN(strings.TrimPrefix(path, dirUsage), "/", parts)
	if len(at) != parts {
		return r, "", false
	}
	return UsageRow{Account: at[0], Day: at[1], Key: at[2], Deployment: at[4]}, at[3], true
}

// decodeUsage returns the row of an item.
func decodeUsage(item Item) (UsageRow, error) {
	r, _, _ := usageAt(item.Key)
	record := usageRecord{UsageRow: r}
	err := decode(item, &record)
	return record.UsageRow, err
}

// check fails if the row cannot be stored.
func (r *UsageRow) check() error {
	if err := checkDay(r.Day); err != nil {
		return err
	}
	if strings.Contains(r.Key, "/") {
		return Errorf(ErrInvalid, "%.40q is not the id of a key", r.Key)
	}
	return nil
}

func checkDay(day string) error {
	if _, err := time.Parse(time.DateOnly, day); err != nil {
		return Errorf(ErrInvalid, "%.40q is not a day like 2026-11-21", day)
	}
	return nil
}

// SaveUsage stores rows of this gateway. Each replaces what was stored, so a write with an
// unknown outcome can be repeated. rows must not contain duplicates. Those of removed accounts
// are ignored.
func (s *Store) SaveUsage(ctx context.Context, rows []UsageRow) error {
	t := new(tx)
	for _, r := range rows {
		if err := r.check(); err != nil {
			return err
		}
		if _, ok := s.Account(r.Account); ok {
			t.put(r.path(s.edge), &usageRecord{UsageRow: r})
		}
	}
	if err := s.putLocal(ctx, t); err != nil {
		return fmt.Errorf("saving the usage: %w", err)
	}
	return nil
}

// OwnUsage returns the sums of a row of this gateway, as last saved.
func (s *Store) OwnUsage(ctx context.Context, r UsageRow) (Usage, error) {
	if err := r.check(); err != nil {
		return Usage{}, err
	}
	if _, ok := s.Account(r.Account); !ok {
		return Usage{}, nil
	}
	ctx, cancel := s.limited(ctx)
	defer cancel()
	path := r.path(s.edge)
	item, err := s.local.Get(ctx, path)
	if err == nil && !item.Exists() && s.local != s.kv { // published long ago
		item, err = s.kv.Get(ctx, path)
	}
	if err != nil || !item.Exists() {
		return Usage{}, err
	}
	r, err = decodeUsage(item)
	return r.Usage, err
}

// EachUsage calls f with the rows of an account on the days from from to to, of all gateways,
// and with those of the folded months that have one of these days. The rows of this gateway
// are those it has saved, which it may not have published. f must not use the store.
func (s *Store) EachUsage(ctx context.Context, account, from, to string, f func(UsageRow) error) error {
	for _, day := range []string{from, to} {
		if err := checkDay(day); err != nil {
			return err
		}
	}
	if !checkAccount(account) {
		return errNoAccount(account)
	}
	ctx, cancel := s.limited(ctx)
	defer cancel()
	own := make(map[string]UsageRow) // not in the shared KV, or not up to date there
	each := func(kv KV, f func(path string, r UsageRow) error) error {
		_, err := kv.Each(ctx, usageSpan(account, from, to), func(item Item) error {
			r, _, ok := usageAt(item.Key)
			if !ok || len(r.Day) == len(time.DateOnly) && r.Day > to {
				return nil
			}
			r, err := decodeUsage(item)
			if err != nil {
				return err
			}
			return f(item.Key, r)
		})
		return err
	}
	var err error
	if s.local != s.kv {
		err = each(s.local, func(path string, r UsageRow) error {
			own[path] = r
			return f(r)
		})
	}
	if err == nil {
		err = each(s.kv, func(path string, r UsageRow) error {
			if _, ok := own[path]; ok {
				return nil
			}
			return f(r)
		})
	}
	if err != nil {
		return fmt.Errorf("reading the usage: %w", err)
	}
	return nil
}

// usageSpan returns the span of the days from from to the end of the month of to. A month
// sorts after its days.
func usageSpan(account, from, to string) Span {
	dir := dirUsage + account + "/"
	return Span{Start: dir + from, End: dir + to[:len(monthOnly)] + string(rune('/'+1))}
}
