package main

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/upstream/play"
)

// at is a time of these tests, in seconds.
func at(seconds float64) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// made is a fault that lasted from 10 to 20.
func made(kind *faultKind, connectors ...int) *fault {
	return &fault{kind: kind, connectors: connectors, from: at(10), until: at(20)}
}

// A caseOfCause is an outcome and why it is as it is. What it leaves out is of a
// request without a fault of its own that ended at 15.
type caseOfCause struct {
	faults []*fault
	o      outcome
	want   string
	known  bool
}

func (c *caseOfCause) check(t *testing.T, name string) {
	t.Helper()
	if c.o.request == nil {
		c.o.request = &request{Script: play.Script{End: play.Whole}, habit: reads}
	}
	if c.o.key == nil {
		c.o.key = &key{}
	}
	if c.o.ended.IsZero() {
		c.o.ended = at(15)
	}
	got, known := (&faultLog{faults: c.faults}).cause(&c.o)
	if got != c.want || known != c.known {
		t.Errorf("%s: %q, %t; want %q, %t", name, got, known, c.want, c.known)
	}
}

func TestCauseOfARequestsOwn(t *testing.T) {
	revoked, one := &key{id: "k", revoked: at(12)}, [][]int{{1}}
	for name, c := range map[string]caseOfCause{
		"an answer":                {o: outcome{symptom: well}, known: true},
		"a client that left":       {o: outcome{symptom: left}, known: true},
		"no fault":                 {o: outcome{symptom: broken, homes: one}},
		"a valid key":              {o: outcome{symptom: unauthorized, homes: one}},
		"a revoked key":            {o: outcome{symptom: unauthorized, request: &request{key: revoked}}, want: causeKeyRevoked, known: true},
		"before it was revoked":    {o: outcome{symptom: unauthorized, ended: at(11), request: &request{key: revoked}}},
		"the model dies":           {o: outcome{symptom: cut, request: &request{Script: play.Script{End: play.Dies}}}, want: causeModelDied, known: true},
		"the model dies unnoticed": {o: outcome{symptom: well, request: &request{Script: play.Script{End: play.Dies}}}},
		"the model dies silently":  {o: outcome{symptom: severed, request: &request{Script: play.Script{End: play.Dies}}}},
		"the model fails":          {o: outcome{symptom: broken, request: &request{Script: play.Script{End: play.Fails}}}, want: causeModelFailed, known: true},
		"a deaf client":            {o: outcome{symptom: severed, request: &request{Script: play.Script{End: play.Whole}, habit: deaf}}, want: causeDeaf, known: true},
		"a deaf client is served":  {o: outcome{symptom: well, request: &request{Script: play.Script{End: play.Whole}, habit: deaf}}},
	} {
		c.check(t, name)
	}
}

func TestCauseInTheLog(t *testing.T) {
	one, two := [][]int{{1}}, [][]int{{1, 2}}
	for name, c := range map[string]caseOfCause{
		"killed":                    {[]*fault{made(&connectorKilled, 1)}, outcome{symptom: broken, homes: one}, "connector killed", true},
		"another was killed":        {[]*fault{made(&connectorKilled, 2)}, outcome{symptom: broken, homes: one}, "", false},
		"too early":                 {[]*fault{made(&connectorKilled, 1)}, outcome{symptom: broken, homes: one, ended: at(9)}, "", false},
		"just after":                {[]*fault{made(&connectorKilled, 1)}, outcome{symptom: broken, homes: one, ended: at(21)}, "connector killed", true},
		"too late":                  {[]*fault{made(&connectorKilled, 1)}, outcome{symptom: broken, homes: one, ended: at(23)}, "", false},
		"read late":                 {[]*fault{made(&connectorKilled, 1)}, outcome{symptom: cut, homes: one, ended: at(25), request: &request{Script: play.Script{End: play.Whole}, habit: pauses}}, "connector killed", true},
		"an overloaded machine":     {[]*fault{made(&machineOverloaded)}, outcome{symptom: cut, homes: one}, "machine overloaded", true},
		"wrong all the same":        {[]*fault{made(&machineOverloaded)}, outcome{symptom: severed, homes: one}, "", false},
		"cut without a word":        {[]*fault{made(&connectorKilled, 1)}, outcome{symptom: severed, homes: one}, "", false},
		"by the gateway's death":    {[]*fault{made(&gatewayKilled)}, outcome{symptom: severed, homes: one}, "gateway killed", true},
		"by its restart":            {[]*fault{made(&gatewayRestarted)}, outcome{symptom: severed, homes: one}, "", false},
		"refused by its restart":    {[]*fault{made(&gatewayRestarted)}, outcome{symptom: refused, homes: one}, "gateway restarted", true},
		"a reload":                  {[]*fault{made(&gatewayReloaded)}, outcome{symptom: cut, homes: one}, "", false},
		"refused by a reload":       {[]*fault{made(&gatewayReloaded)}, outcome{symptom: refused, homes: one, ended: at(20.1)}, "gateway reloaded", true},
		"refused long after it":     {[]*fault{made(&gatewayReloaded)}, outcome{symptom: refused, homes: one, ended: at(30)}, "", false},
		"between two, at a reload":  {[]*fault{made(&gatewayReloaded)}, outcome{symptom: stale, homes: one, ended: at(49)}, "gateway reloaded", true},
		"a rebind":                  {[]*fault{made(&pathRebound, 1)}, outcome{symptom: cut, homes: one}, "", false},
		"a wrong answer":            {[]*fault{made(&gatewayKilled)}, outcome{symptom: wrong, homes: one}, "", false},
		"no end":                    {[]*fault{made(&gatewayKilled)}, outcome{symptom: hung, homes: one}, "", false},
		"offline, one of two":       {[]*fault{made(&connectorKilled, 1)}, outcome{symptom: offline, homes: two}, "", false},
		"offline, two of two":       {[]*fault{made(&connectorKilled, 2), made(&connectorFrozen, 1)}, outcome{symptom: offline, homes: two}, "connector frozen", true},
		"cut, one of two":           {[]*fault{made(&connectorKilled, 2)}, outcome{symptom: cut, homes: two}, "connector killed", true},
		"moved from where it broke": {[]*fault{made(&connectorKilled, 1)}, outcome{symptom: offline, homes: [][]int{{1}, {2}}}, "connector killed", true},
		"the nearer one":            {[]*fault{made(&gatewayReloaded), {kind: &gatewayRestarted, from: at(20)}}, outcome{symptom: refused, homes: one, ended: at(21)}, "gateway restarted", true},
		"under way":                 {[]*fault{{kind: &connectorKilled, connectors: []int{1}, from: at(10)}}, outcome{symptom: cut, homes: one, ended: at(99)}, "connector killed", true},
	} {
		c.check(t, name)
	}
}

func TestTally(t *testing.T) {
	l := &faultLog{}
	f := l.begin(&connectorKilled, []int{1}, "")
	lines := func(time.Time, time.Time, []int) []string { return []string{"a line"} }
	n := newTally(l, lines)
	r := &request{Script: play.Script{ID: 77, End: play.Whole}, dialect: messages, streamed: true, habit: reads, model: &deployment{name: "m"}, key: &key{id: "k"}}
	now := time.Now()
	for _, o := range []outcome{
		{request: r, ended: now, symptom: well},
		{request: r, ended: now, symptom: cut, homes: [][]int{{1}}},
		{request: r, ended: now, symptom: cut, homes: [][]int{{2}}},
	} {
		n.start(r)
		n.end(&o)
	}
	l.end(f)
	if n.total != 3 || n.fine != 1 || n.failures() != 1 || n.unknown != 1 || len(n.findings) != 1 || f.caused != 1 {
		t.Errorf("%s; %d findings", n.line(), len(n.findings))
	}
	if log := n.findings[0].log; len(log) != 1 {
		t.Errorf("the finding's log is %q", log)
	}
	if s := l.summaries(); len(s) != 1 || s[0].count != 1 || s[0].caused != 1 || len(s[0].recovered) != 1 {
		t.Errorf("summaries %+v", s)
	}
	if around := l.around(now, now); len(around) != 1 {
		t.Errorf("faults around: %q", around)
	}
	if around := l.around(now.Add(time.Hour), now.Add(time.Hour)); len(around) != 0 {
		t.Errorf("faults an hour later: %q", around)
	}
}
