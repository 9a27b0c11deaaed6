package link

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/window"
)

func TestReportCheck(t *testing.T) {
	long := func(n int) (ids []string) {
		for i := range n {
			ids = append(ids, fmt.Sprintf("m%d", i))
		}
		return ids
	}
	good := func() Report {
		return Report{Upstreams: []UpstreamReport{{Name: "a", Reachable: true, Models: []string{"x"}}, {Name: "b"}}}
	}
	if err := good().Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Report){
		"bad name":           func(r *Report) { r.Upstreams[1].Name = "a b" },
		"name twice":         func(r *Report) { r.Upstreams[1].Name = "a" },
		"too many upstreams": func(r *Report) { r.Upstreams = make([]UpstreamReport, MaxUpstreams+1) },
		"empty model":        func(r *Report) { r.Upstreams[0].Models = []string{""} },
		"long model":         func(r *Report) { r.Upstreams[0].Models = []string{strings.Repeat("m", MaxField+1)} },
		"terminal escape":    func(r *Report) { r.Upstreams[0].Models = []string{"\x1b[31m"} },
		"no text":            func(r *Report) { r.Upstreams[0].Models = []string{"\xff"} },
		"window of no model": func(r *Report) { r.Upstreams[0].Windows = map[string]int{"y": 1} },
		"window of 0":        func(r *Report) { r.Upstreams[0].Windows = map[string]int{"x": 0} },
		"negative window":    func(r *Report) { r.Upstreams[0].Windows = map[string]int{"x": -1} },
		"huge window":        func(r *Report) { r.Upstreams[0].Windows = map[string]int{"x": window.Max + 1} },
		"status of no model": func(r *Report) { r.Upstreams[0].Status = map[string]string{"y": "loading"} },
		"another status":     func(r *Report) { r.Upstreams[0].Status = map[string]string{"x": "<b>"} },
		"too many models":    func(r *Report) { r.Upstreams[0].Models = long(MaxListed + 1) },
		"too many together": func(r *Report) {
			for i := range 3 {
				r.Upstreams = append(r.Upstreams, UpstreamReport{Name: fmt.Sprint(i), Models: long(MaxListed)})
			}
		},
		"too many bytes": func(r *Report) {
			for range 600 {
				r.Upstreams[0].Models = append(r.Upstreams[0].Models, strings.Repeat("m", MaxField))
			}
		},
	} {
		r := good()
		change(&r)
		if err := r.Check(); err == nil || len(err.Error()) > 300 {
			t.Errorf("%s: %v", name, err)
		}
		r.Fit()
		if name == "too many models" && (len(r.Upstreams[0].Models) != MaxListed || !r.Upstreams[0].Open) {
			t.Errorf("%s: cut to %d, open %t", name, len(r.Upstreams[0].Models), r.Upstreams[0].Open)
		}
	}
	// What was no list stays none, and what fits stays as it is.
	r := Report{Upstreams: []UpstreamReport{
		{Name: "a"},
		{Name: "b", Models: []string{}},
		{
			Name: "c", Models: []string{"x", "y"}, Windows: map[string]int{"y": window.Max},
			Status: map[string]string{"x": "unloaded"},
		},
	}}
	fit := Report{Upstreams: append([]UpstreamReport(nil), r.Upstreams...)}
	if fit.Fit(); !reflect.DeepEqual(fit, r) {
		t.Errorf("fit = %+v", fit)
	}
}

// The largest report fits into a message, also where each character has to be
// escaped.
func TestLargestReport(t *testing.T) {
	r := Report{Upstreams: make([]UpstreamReport, MaxUpstreams)}
	var wire buffered
	c := NewControl(&wire)
	for models, size := range map[int]int{2: 61, 4: 61, 10: MaxField, 64: 61} {
		for i := range r.Upstreams {
			u := UpstreamReport{Name: fmt.Sprintf("%064d", i), Reachable: true, Open: true, Windows: map[string]int{}}
			u.Status = map[string]string{}
			for j := range models {
				id := fmt.Sprintf("%02d", j) + strings.Repeat(`"`, size-2)
				u.Models = append(u.Models, id)
				u.Windows[id], u.Status[id] = window.Max, "unloaded"
			}
			r.Upstreams[i] = u
		}
		r.Fit()
		if err := c.Send(r); err != nil {
			t.Fatal(err)
		}
		got, err := c.Receive()
		if err != nil || got.(Report).Check() != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%d models: %v", models, err)
		}
		if u := r.Upstreams[0]; size < MaxField && (len(u.Models) != models || len(u.Windows) != models ||
			len(u.Status) != models) {
			t.Errorf("of %d models, %d stay and %d have windows", models, len(u.Models), len(u.Windows))
		}
	}
	for i := range r.Upstreams {
		r.Upstreams[i].Models = strings.Split(strings.Repeat("m", 64), "")
		r.Upstreams[i].Windows = map[string]int{"m": 1}
	}
	r.Fit()
	if err := c.Send(r); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(); err != nil {
		t.Errorf("many short ids: %v", err)
	}
}

// FuzzReport: whatever a model server lists can be reported, and whatever passes
// the check can be sent.
func FuzzReport(f *testing.F) {
	f.Add("ollama", "llama3:latest\nqwen", 1)
	f.Add("a", "\x00\n\xff\n"+strings.Repeat(`"\`, 200), 700)
	f.Fuzz(func(t *testing.T, name, list string, times int) {
		r := Report{Upstreams: []UpstreamReport{{Name: name}, {Name: "b"}}}
		for range min(max(times, 0), 100) {
			for i := range r.Upstreams {
				r.Upstreams[i].Windows = map[string]int{list: times, "b": 1}
				r.Upstreams[i].Models = append(r.Upstreams[i].Models, strings.Split(list, "\n")...)
			}
		}
		before := r.Check()
		r.Fit()
		after := r.Check()
		if before == nil && after != nil || CheckUpstream(name) == nil && name != "b" && after != nil {
			t.Fatalf("fitted: %v, before: %v", after, before)
		}
		var wire buffered
		c := NewControl(&wire)
		if after != nil {
			return
		}
		if err := c.Send(r); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Receive(); err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("received %+v, %v", got, err)
		}
	})
}
