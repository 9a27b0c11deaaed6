package link

import (
	"fmt"
	"slices"

	"github.com/postern-dev/postern/connector/text"
)

// Limits of a report, which must fit into one control message.
const (
	// MaxListed bounds the reported models of one upstream.
	MaxListed = 1000
	// maxListedAll and maxListedBytes bound the models of all upstreams together.
	maxListedAll   = 2000
	maxListedBytes = 128 << 10
)

// Report is the state of a connector's upstreams. It replaces the previous report. The
// state of a missing upstream is unknown.
type Report struct {
	Upstreams []UpstreamReport `json:"upstreams"`
}

// UpstreamReport is the state of one upstream.
type UpstreamReport struct {
	Name string `json:"name"`
	// Reachable means that the server answers, even with an error.
	Reachable bool `json:"reachable"`
	// Models are the listed ids. nil means that the server has no list.
	Models []string `json:"models"`
	// Open means that other models may work too: the list was cut, or the server accepts
	// any name.
	Open bool `json:"open,omitempty"`
}

func (Report) kind() string { return "report" }

// Fit shortens the lists of models to the limits of [Report.Check]. It does not modify
// the original lists.
func (r *Report) Fit() {
	count, bytes := 0, 0
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		if u.Models == nil {
			continue
		}
		fitting := make([]string, 0, min(len(u.Models), MaxListed))
		for _, id := range u.Models {
			if CheckModel(id) != nil || len(fitting) == MaxListed || count == maxListedAll || bytes+len(id) > maxListedBytes {
				u.Open = true
				continue
			}
			count++
			bytes += len(id)
			fitting = append(fitting, id)
		}
		u.Models = fitting
	}
}

// Check checks the limits of a report.
func (r Report) Check() error {
	if len(r.Upstreams) > MaxUpstreams {
		return fmt.Errorf("checking report: it names %d upstreams; up to %d are possible", len(r.Upstreams), MaxUpstreams)
	}
	names := make(map[string]bool, len(r.Upstreams))
	count, bytes := 0, 0
	for _, u := range r.Upstreams {
		if err := CheckUpstream(u.Name); err != nil {
			return fmt.Errorf("checking report: %w", err)
		}
		if names[u.Name] {
			return fmt.Errorf("checking report: duplicate upstream %q", u.Name)
		}
		names[u.Name] = true
		if i := slices.IndexFunc(u.Models, func(id string) bool { return CheckModel(id) != nil }); i >= 0 {
			return fmt.Errorf("checking report: upstream %q: %w", u.Name, CheckModel(u.Models[i]))
		}
		for _, id := range u.Models {
			bytes += len(id)
		}
		if count += len(u.Models); len(u.Models) > MaxListed || count > maxListedAll || bytes > maxListedBytes {
			return fmt.Errorf("checking report: it lists too many models; up to %d of an upstream, %d and %d bytes together are possible", MaxListed, maxListedAll, maxListedBytes)
		}
	}
	return nil
}

// CheckModel checks a model's id: 1 to 256 bytes of printable text, as it is shown on
// pages and terminals.
func CheckModel(id string) error {
	if id == "" || len(id) > MaxField || !text.IsPrintable(id) {
		return fmt.Errorf("a model's id is empty, longer than %d bytes or not printable", MaxField)
	}
	return nil
}
