package store

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
)

// HourOnly is the layout of the hours of usage rows. That of days is [time.DateOnly].
const HourOnly = "2006-01-02T15"

const (
	// keepDays and keepHours are how long usage is kept by day and by hour.
	keepDays  = 400
	keepHours = 7 * 24
)

// UsageRow is the usage of a key with a deployment through one gateway, on a day or in an hour. Hours are kept in
// addition to their days.
type UsageRow struct {
	Account    string `json:"-"`
	Day        string `json:"day"`        // in UTC, like 2026-11-21, or 2026-11-21T15 for an hour
	Key        string `json:"key"`        // id; "": requests without a key
	Deployment string `json:"deployment"` // registered name; "": requests without one
	Person     string `json:"-"`          // of a row of a person, which has no deployment; else ""
	KeyName    string `json:"key_name"`
	Usage
}

// Usage contains sums over requests.
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
	Speeds          Histogram `json:"tokens_per_second_buckets,omitzero"` // after the first token: below 0.5, 0.825 and so on
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

// path returns the KV key of a row of an edge. The name of the deployment may contain
// slashes, so it is last.
func (r *UsageRow) path(edge string) string {
	rest := r.Account + "/" + r.Day + "/" + r.Key + "/"
	if r.Person != "" {
		return dirPeople + rest + url.PathEscape(r.Person) + "/" + edge
	}
	return usageDir(r.Day) + rest + edge + "/" + r.Deployment
}

// rowOf returns the row with a KV key, without its sums.
func rowOf(path string) (UsageRow, error) {
	parts := strings.SplitN(path, "/", 7)
	if len(parts) < 7 {
		return UsageRow{}, fmt.Errorf("%q is not the key of a row of usage", path)
	}
	r := UsageRow{Account: parts[2], Day: parts[3], Key: parts[4], Deployment: parts[6]}
	if strings.HasPrefix(path, dirPeople) {
		r.Deployment = ""
		r.Person, _ = url.PathUnescape(parts[5])
	}
	return r, nil
}

// keeps reports whether a row is kept.
func (s *Store) keeps(r *UsageRow) bool {
	_, known := s.Account(r.Account)
	return known && (r.Person == "" || s.KeepsPerson(r.Account, r.Key, r.Person, r.Day))
}

// UnitOf returns the layout and the length of a day or an hour of usage rows.
func UnitOf(day string) (layout string, length time.Duration) {
	if len(day) == len(HourOnly) {
		return HourOnly, time.Hour
	}
	return time.DateOnly, 24 * time.Hour
}

// usageDir returns the directory of the rows of a day or an hour.
func usageDir(day string) string {
	if layout, _ := UnitOf(day); layout == HourOnly {
		return dirHours
	}
	return dirUsage
}

// decodeUsage returns the row of an item.
func decodeUsage(item Item) (r UsageRow, err error) {
	if r, err = rowOf(item.Key); err != nil {
		return r, err
	}
	var record usageRecord
	err = decode(item, &record)
	r.KeyName, r.Usage = record.KeyName, record.Usage
	return r, err
}

// check fails if the row cannot be stored.
func (r *UsageRow) check() error {
	layout, _ := UnitOf(r.Day)
	if _, err := time.Parse(layout, r.Day); err != nil {
		return Errorf(ErrInvalid, "%.40q is not a day like 2026-11-21", r.Day)
	}
	if strings.Contains(r.Key, "/") {
		return Errorf(ErrInvalid, "%.40q is not the id of a key", r.Key)
	}
	return nil
}

// SaveUsage stores rows of this gateway. Each replaces the stored row, so a write with an
// unknown outcome can be repeated. rows must not contain duplicates. Rows of removed accounts
// and of forgotten people are ignored.
func (s *Store) SaveUsage(ctx context.Context, rows []UsageRow) error {
	t := new(tx)
	for _, r := range rows {
		if err := r.check(); err != nil {
			return err
		}
		if s.keeps(&r) {
			t.put(r.path(s.edge), &usageRecord{KeyName: r.KeyName, Usage: r.Usage})
		}
	}
	if err := s.putOwn(ctx, t); err != nil {
		return fmt.Errorf("saving the usage: %w", err)
	}
	return nil
}

// OwnUsage returns the sums of a row of this gateway, as last saved. ctx bounds only reads of the
// shared KV, which are necessary for rows that the KV of the gateway no longer keeps.
func (s *Store) OwnUsage(ctx context.Context, r UsageRow) (Usage, error) {
	if err := r.check(); err != nil {
		return Usage{}, err
	}
	if !s.keeps(&r) {
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

// EachUsage calls f with the rows of an account, of all gateways, of the days or hours from from to to; with a
// key, only with those of this key, without reading others. The rows include those that this gateway has saved
// and not published. Those of other gateways are at most half a minute old. f must not use the store.
func (s *Store) EachUsage(ctx context.Context, account, key, from, to string, f func(UsageRow) error) error {
	for _, day := range []string{from, to} {
		if err := (&UsageRow{Day: day, Key: key}).check(); err != nil {
			return err
		}
	}
	if !checkAccount(account) {
		return errNoAccount(account)
	}
	return s.eachRow(ctx, usageSpans(usageDir(to)+account+"/", key, from, to), f)
}

// eachRow calls f with the rows of spans.
func (s *Store) eachRow(ctx context.Context, spans []Span, f func(UsageRow) error) error {
	ctx, cancel := s.withSharedTimeout(ctx)
	defer cancel()
	var err error
	own := make(map[string]UsageRow)
	if s.own != s.shared {
		err = eachUsage(ctx, s.own, spans, func(path string, r UsageRow) error {
			own[path] = r
			return nil
		})
	}
	if err == nil {
		err = eachUsage(ctx, s.shared, spans, func(path string, r UsageRow) error {
			// Sums only grow. The shared KV may lack the newest ones of this gateway.
			if o, ok := own[path]; ok && o.Requests > r.Requests {
				r = o
			}
			delete(own, path)
			return f(r)
		})
	}
	for _, r := range own {
		if err == nil {
			err = f(r)
		}
	}
	if err != nil {
		return fmt.Errorf("reading the usage: %w", err)
	}
	return nil
}

// eachUsage calls f with the rows of spans of a KV, and their paths.
func eachUsage(ctx context.Context, kv KV, spans []Span, f func(path string, r UsageRow) error) error {
	for _, span := range spans {
		_, err := kv.Each(ctx, span, func(item Item) error {
			r, err := decodeUsage(item)
			if err != nil {
				return err
			}
			return f(item.Key, r)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// usageSpans returns the spans of the rows of an account in dir: one from the day or hour from to to, or, with a key,
// one of the key for each day or hour.
func usageSpans(dir, key, from, to string) (spans []Span) {
	if key == "" {
		return []Span{{Start: dir + from, End: Prefix(dir + to + "/").End}}
	}
	layout, step := UnitOf(from)
	day, _ := time.Parse(layout, from) // it is checked
	for ; day.Format(layout) <= to; day = day.Add(step) {
		spans = append(spans, Prefix(dir+day.Format(layout)+"/"+key+"/"))
	}
	return spans
}

// oldUsage returns the spans of the rows of an account that are too old.
func (s *Store) oldUsage(account string) (days, hours Span) {
	now, days, hours := s.now().UTC(), Prefix(dirUsage+account+"/"), Prefix(dirHours+account+"/")
	days.End = days.Start + now.AddDate(0, 0, -keepDays).Format(time.DateOnly)
	hours.End = hours.Start + now.Add(-keepHours*time.Hour).Format(HourOnly)
	return days, hours
}
