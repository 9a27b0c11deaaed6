package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
)

// The layouts of the months and hours of usage rows, besides [time.DateOnly].
const (
	monthOnly = "2006-01"
	HourOnly  = "2006-01-02T15"
)

// UsageRow is the usage of a key with a deployment: through one gateway on a day or in an hour,
// or through all gateways in a folded month. Hours are kept in addition to their days.
type UsageRow struct {
	Account    string `json:"-"`
	Day        string `json:"day"`        // in UTC, like 2026-11-21; like 2026-08 for a month, 2026-11-21T15 for an hour
	Key        string `json:"key"`        // id; "": requests without a key
	Deployment string `json:"deployment"` // registered name; "": requests without one
	KeyName    string `json:"key_name"`
	Usage
}

// Usage has sums over requests.
type Usage struct {
	// Requests are all requests with a valid key. A request that reached no model has no tokens.
	Requests int64 `json:"requests" column:"REQUESTS"`
	// ModelRequests are the requests that a model server got. Limits count these.
	ModelRequests int64 `json:"model_requests"`
	// CallerErrors are requests that failed because of the client: an invalid request, or a
	// client that left before the end.
	CallerErrors int64 `json:"caller_errors"`
	// PolicyErrors are requests that the gateway refused: limits, a full queue, a revoked key.
	PolicyErrors int64 `json:"policy_errors" column:"REFUSED"`
	// GatewayErrors are requests that failed because of the gateway.
	GatewayErrors int64 `json:"gateway_errors"`
	// UpstreamErrors are requests that failed because of the connector or the model server.
	UpstreamErrors int64 `json:"upstream_errors"`
	InputTokens    int64 `json:"input_tokens" column:"INPUT"`
	// CachedTokens are the input tokens that the model server had in a cache.
	CachedTokens int64 `json:"cached_tokens"`
	OutputTokens int64 `json:"output_tokens" column:"OUTPUT"`
	// ReasoningTokens are the output tokens for reasoning.
	ReasoningTokens int64 `json:"reasoning_tokens"`
	// EstimatedRequests are requests whose tokens the model server did not count.
	EstimatedRequests int64 `json:"estimated_requests"`
	// EstimatedTokens are the input and output tokens of these requests.
	EstimatedTokens int64 `json:"estimated_tokens" column:"ESTIMATED"`
	// BusyMillis is the time from sending requests to model servers to the end of their answers.
	BusyMillis int64 `json:"busy_ms"`
	// FirstTokens are streamed answers that have begun.
	FirstTokens int64 `json:"first_tokens"`
	// FirstTokenMillis is the time from when model servers got these requests to their first tokens.
	FirstTokenMillis int64 `json:"first_token_ms"`

	FirstTokenTimes Histogram `json:"first_token_buckets,omitzero"`       // below 16 ms, 32 ms, 64 ms and so on
	Waits           Histogram `json:"wait_buckets,omitzero"`              // of requests that a model server got, or that waited
	Speeds          Histogram `json:"tokens_per_second_buckets,omitzero"` // after the first token: below 2, 3, 4.5 and so on
}

// Add adds other sums.
func (u *Usage) Add(o Usage) {
	u.Requests += o.Requests
	u.ModelRequests += o.ModelRequests
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
	u.FirstTokenTimes.add(o.FirstTokenTimes)
	u.Waits.add(o.Waits)
	u.Speeds.add(o.Speeds)
}

// Sums returns the sums that limits count.
func (u Usage) Sums() limits.Sums {
	return limits.Sums{Requests: u.ModelRequests, Tokens: u.InputTokens + u.OutputTokens, BusyMillis: u.BusyMillis}
}

// Outages returns the number of requests that the gateway, a connector or a model server has failed.
func (u Usage) Outages() int64 { return u.GatewayErrors + u.UpstreamErrors }

// Errors returns the number of requests that were not answered, through any fault.
func (u Usage) Errors() int64 {
	return u.CallerErrors + u.PolicyErrors + u.GatewayErrors + u.UpstreamErrors
}

// usageRecord is the stored part of a row. The rest is in its KV key.
type usageRecord struct {
	header
	KeyName string `json:"key_name"`
	Usage
}

// path returns the KV key of a row of an edge. The edge of a month is "". The name of the
// deployment may contain slashes, so it is last.
func (r *UsageRow) path(edge string) string {
	return usageDir(r.Day) + r.Account + "/" + r.Day + "/" + r.Key + "/" + edge + "/" + r.Deployment
}

// usageDir returns the directory of the rows of a day, a month or an hour.
func usageDir(day string) string {
	if len(day) == len(HourOnly) {
		return dirHours
	}
	return dirUsage
}

// parseUsagePath returns the row of a KV key without its sums, and its edge.
func parseUsagePath(path string) (r UsageRow, edge string, ok bool) {
	const parts = 5
	_, path, _ = strings.Cut(strings.TrimPrefix(path, dirUnwatched), "/")
	p := strings.SplitN(path, "/", parts)
	if len(p) != parts {
		return r, "", false
	}
	return UsageRow{Account: p[0], Day: p[1], Key: p[2], Deployment: p[4]}, p[3], true
}

// decodeUsage returns the row of an item.
func decodeUsage(item Item) (UsageRow, error) {
	r, _, _ := parseUsagePath(item.Key)
	var record usageRecord
	err := decode(item, &record)
	r.KeyName, r.Usage = record.KeyName, record.Usage
	return r, err
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

// checkDay fails unless day is a day or an hour.
func checkDay(day string) error {
	layout := time.DateOnly
	if len(day) == len(HourOnly) {
		layout = HourOnly
	}
	if _, err := time.Parse(layout, day); err != nil {
		return Errorf(ErrInvalid, "%.40q is not a day like 2026-11-21", day)
	}
	return nil
}

// SaveUsage stores rows of this gateway. Each replaces the stored row, so a write with an
// unknown outcome can be repeated. rows must not contain duplicates. Rows of removed accounts
// are ignored.
func (s *Store) SaveUsage(ctx context.Context, rows []UsageRow) error {
	t := new(tx)
	for _, r := range rows {
		if err := r.check(); err != nil {
			return err
		}
		if _, ok := s.Account(r.Account); ok {
			t.put(r.path(s.edge), &usageRecord{KeyName: r.KeyName, Usage: r.Usage})
		}
	}
	if err := s.putOwn(ctx, t); err != nil {
		return fmt.Errorf("saving the usage: %w", err)
	}
	return nil
}

// OwnUsage returns the sums of a row of this gateway, as last saved. ctx bounds only reads of the
// shared KV, which are necessary for rows that the KV of the gateway no longer has.
func (s *Store) OwnUsage(ctx context.Context, r UsageRow) (Usage, error) {
	if err := r.check(); err != nil {
		return Usage{}, err
	}
	if _, ok := s.Account(r.Account); !ok {
		return Usage{}, nil
	}
	path := r.path(s.edge)
	item, err := s.own.Get(context.WithoutCancel(ctx), path)
	if err == nil && !item.Exists() && s.own != s.shared { // it may have been published long ago
		ctx, cancel := s.withSharedTimeout(ctx)
		defer cancel()
		item, err = s.shared.Get(ctx, path)
	}
	if err != nil || !item.Exists() {
		return Usage{}, err
	}
	r, err = decodeUsage(item)
	return r.Usage, err
}

// EachUsage calls f with the rows of an account, of all gateways: those of the days from from to
// to, and those of the folded months that have one of these days. If from and to are hours, it
// calls f with the rows of these hours. The rows include those that this gateway has saved and
// not published. Those of other gateways are at most half a minute old. f must not use the store.
func (s *Store) EachUsage(ctx context.Context, account, from, to string, f func(UsageRow) error) error {
	for _, day := range []string{from, to} {
		if err := checkDay(day); err != nil {
			return err
		}
	}
	if !checkAccount(account) {
		return errNoAccount(account)
	}
	ctx, cancel := s.withSharedTimeout(ctx)
	defer cancel()
	latest, err := s.unpublished(ctx, account, from, to)
	if err == nil {
		err = eachUsage(ctx, s.shared, account, from, to, func(path string, r UsageRow) error {
			// Sums only grow. This gateway may have published newer ones in the meantime.
			if l, ok := latest[path]; ok && l.Requests > r.Requests {
				r = l
			}
			delete(latest, path)
			return f(r)
		})
	}
	for _, r := range latest {
		if err == nil {
			err = f(r)
		}
	}
	if err != nil {
		return fmt.Errorf("reading the usage: %w", err)
	}
	return nil
}

// KeyUsage calls f with the rows of a key on the days from from to to, of all gateways. The rows
// of other gateways are at most half a minute old. Unlike EachUsage, it does not read those of
// other keys.
func (s *Store) KeyUsage(ctx context.Context, account, key string, from, to time.Time, f func(UsageRow)) error {
	ctx, cancel := s.withSharedTimeout(ctx)
	defer cancel()
	for day := from.UTC().Truncate(24 * time.Hour); !day.After(to); day = day.AddDate(0, 0, 1) {
		row := UsageRow{Account: account, Day: day.Format(time.DateOnly), Key: key}
		if err := row.check(); err != nil {
			return err
		}
		span := Prefix(strings.TrimSuffix(row.path(""), "/"))
		rows := make(map[string]UsageRow)
		for _, kv := range slices.Compact([]KV{s.shared, s.own}) { // own has rows that are not published
			_, err := kv.Each(ctx, span, func(item Item) error {
				r, err := decodeUsage(item)
				rows[item.Key] = r
				return err
			})
			if err != nil {
				return fmt.Errorf("reading the usage of a key: %w", err)
			}
		}
		for _, r := range rows {
			f(r)
		}
	}
	return nil
}

// unpublished returns the rows of this gateway, by path. The shared KV may lack them, or have them with older sums.
func (s *Store) unpublished(ctx context.Context, account, from, to string) (map[string]UsageRow, error) {
	from = max(from, s.firstUnfolded()) // older rows are never published
	rows := make(map[string]UsageRow)
	if s.own == s.shared {
		return rows, nil
	}
	return rows, eachUsage(ctx, s.own, account, from, to, func(path string, r UsageRow) error {
		rows[path] = r
		return nil
	})
}

// eachUsage calls f with the rows of an account in a KV, and their paths.
func eachUsage(ctx context.Context, kv KV, account, from, to string,
	f func(path string, r UsageRow) error,
) error {
	_, err := kv.Each(ctx, usageSpan(account, from, to), func(item Item) error {
		r, _, ok := parseUsagePath(item.Key)
		if !ok || len(r.Day) == len(to) && r.Day > to {
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

// usageSpan returns the span from the day or hour from to the end of the month of to. The row of a
// month sorts after those of its days.
func usageSpan(account, from, to string) Span {
	dir := usageDir(to) + account + "/"
	return Span{Start: dir + from, End: dir + to[:len(monthOnly)] + string(rune('/'+1))}
}
