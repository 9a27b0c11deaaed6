package main

import (
	"fmt"
	"strings"
	"time"
)

// A symptom is how a request failed, as its client sees it.
type symptom string

const (
	well         symptom = ""
	left         symptom = "left"           // by the client, as it wanted to
	refused      symptom = "no connection"  // nobody listened, or the connection ended before an answer
	stale        symptom = "closed between" // a kept connection ended as the request went out
	offline      symptom = "offline"        // 503: the connector is not there
	broken       symptom = "broken"         // 502: connector or model server went away before the answer
	cut          symptom = "cut"            // a stream that ended with an error of the gateway
	severed      symptom = "severed"        // an answer that ended in the middle without a word
	unauthorized symptom = "unauthorized"   // 401
	busy         symptom = "busy"           // 429
	failed       symptom = "failed"         // another error status
	wrong        symptom = "wrong"          // an answer that is not the right one
	hung         symptom = "hung"           // no end
)

// An outcome is a request that has ended.
type outcome struct {
	*request
	began, ended time.Time
	symptom      symptom
	detail       string
	requestID    string
	status       int
	homes        [][]int // what the deployment led to meanwhile
}

// symptomOf says what an error status is, or an error within a stream.
func symptomOf(status int, t *told) symptom {
	code := t.Type
	if t.Code != nil && *t.Code != "" {
		code = *t.Code
	}
	switch {
	case status == 401 || code == "invalid_api_key" || code == "authentication_error":
		return unauthorized
	case strings.Contains(t.Message, "is offline"): // whatever the code, which a stream has its own for
		return offline
	case status == 429 || code == "rate_limit_exceeded" || code == "rate_limit_error":
		return busy
	case status == 503 || status == 529 || code == "deployment_offline" || code == "overloaded_error":
		return offline
	case status == 502:
		return broken
	case status == 200:
		return cut
	}
	return failed
}

// story tells all that is known of a failure; it holds no prompt, answer or key.
func (o *outcome) story() string {
	return fmt.Sprintf("request %d, %s, model %s of connectors %v, key %s, on a %s connection\n  from %s to %s: %s, status %d, request id %q\n  %s",
		o.ID, o.kind(), o.model.name, o.homes, o.key.id, map[bool]string{true: "fresh", false: "kept"}[o.fresh],
		clock(o.began), clock(o.ended), o.symptom, o.status, o.requestID, o.detail)
}

// clock shows a time of day.
func clock(t time.Time) string {
	if t.IsZero() {
		return "…"
	}
	return t.Format("15:04:05.000")
}

// numbers shows connectors by their number.
func numbers(connectors []int) string {
	if len(connectors) > 6 {
		return fmt.Sprintf("%v and %d more", connectors[:6], len(connectors)-6)
	}
	return fmt.Sprint(connectors)
}
