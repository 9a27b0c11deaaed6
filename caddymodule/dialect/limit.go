package dialect

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Limit is a limit that a request has reached.
type Limit struct {
	Name      string // such as tokens_per_minute or concurrency
	Of        string // such as key or account
	Group     string // its name, of a limit of a group
	Max, Used int64
	Total     int64         // of all edges of a cluster, if Max is the share of this one; else 0
	Quota     bool          // it is of a day or month
	Wait      time.Duration // until the request may succeed
	Reset     time.Time     // of a quota
}

// limitConcurrency is the name of the limit that is not an amount per time.
const limitConcurrency = "concurrency"

// LimitReached is the error for a request that a limit refuses. Clients read the time to wait
// from the end of its message, and from headers. They do not retry after a quota.
func LimitReached(l Limit) *Error {
	e := &Error{Kind: KindRateLimit, Wait: l.Wait, openaiType: "requests"}
	if strings.HasPrefix(l.Name, "tokens_") {
		e.openaiType = "tokens"
	}
	amount, subject := l.Amount(), l.Subject("This")
	switch {
	case l.Quota:
		e.Kind, e.openaiType, e.NoRetry = KindQuota, "", true
		e.Message = fmt.Sprintf("Quota used up. %s is limited to %s and has used %d. It resets at %s. To continue "+
			"sooner, ask the operator to raise the limit.", subject, amount, l.Used,
			l.Reset.Round(time.Second).Format("2006-01-02 15:04 UTC"))
	case l.Name == limitConcurrency:
		e.Message = fmt.Sprintf("Rate limit reached. %s is limited to %s, and too many requests are waiting, or this "+
			"one has waited too long.", subject, amount)
	default:
		e.Message = fmt.Sprintf("Rate limit reached. %s is limited to %s.", subject, amount)
	}
	e.RetryAfter = int((l.Wait + time.Second - 1) / time.Second)
	return e
}

// Subject returns what the limit is of, for the beginning of a sentence. A group is named.
func (l Limit) Subject(article string) string {
	if l.Group != "" {
		return "The group " + strconv.Quote(l.Group)
	}
	return article + " " + l.Of
}

// Amount returns the limit in words, such as "60 requests per minute".
func (l Limit) Amount() string {
	what := strings.ReplaceAll(l.Name, "_", " ")
	switch {
	case l.Name == limitConcurrency:
		what = "concurrent requests"
	case strings.HasPrefix(what, "seconds"):
		what = "compute " + what
	}
	if l.Max == 1 && l.Total == 0 {
		what = strings.Replace(what+" ", "s ", " ", 1)
	}
	amount := strconv.FormatInt(l.Max, 10)
	if l.Total > 0 {
		return amount + " of " + strconv.FormatInt(l.Total, 10) + " " + what + " at this edge of the cluster"
	}
	return strings.TrimSpace(amount + " " + what)
}

// Allowance is the state of the tightest limit of a kind.
type Allowance struct {
	Limit, Remaining int64
	Reset            time.Duration // until nothing is used
}

// RateHeader returns the headers with a client's limits and what remains of them. nil means that
// there is no limit.
func RateHeader(d Dialect, requests, tokens *Allowance, now time.Time) http.Header {
	h, f := make(http.Header), d.format()
	if requests != nil {
		f.rate(h, "Requests", requests, now)
	}
	if tokens != nil {
		for _, kind := range f.tokens {
			f.rate(h, kind, tokens, now)
		}
	}
	return h
}

// rateOfOpenAI adds the headers of OpenAI, whose clients parse durations.
func rateOfOpenAI(h http.Header, kind string, a *Allowance, _ time.Time) {
	h["X-Ratelimit-Limit-"+kind] = []string{strconv.FormatInt(a.Limit, 10)}
	h["X-Ratelimit-Remaining-"+kind] = []string{strconv.FormatInt(a.Remaining, 10)}
	h["X-Ratelimit-Reset-"+kind] = []string{a.Reset.Round(time.Millisecond).String()}
}

// rateOfAnthropic adds the headers of Anthropic, whose clients parse times.
func rateOfAnthropic(h http.Header, kind string, a *Allowance, now time.Time) {
	prefix := "Anthropic-Ratelimit-" + kind
	h[prefix+"-Limit"] = []string{strconv.FormatInt(a.Limit, 10)}
	h[prefix+"-Remaining"] = []string{strconv.FormatInt(a.Remaining, 10)}
	h[prefix+"-Reset"] = []string{now.Add(a.Reset).UTC().Format(time.RFC3339)}
}

// Lowest returns the lowest limit, 0 if there is none. Values below 1 are not limits.
func Lowest[T int | int64](all ...T) (lowest T) {
	for _, limit := range all {
		if limit > 0 && (lowest == 0 || limit < lowest) {
			lowest = limit
		}
	}
	return lowest
}
