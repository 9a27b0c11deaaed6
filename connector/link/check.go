package link

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/window"
)

// Limits of a hello.
const (
	MaxUpstreams = 256
	MaxRoutes    = 256
	MaxField     = 256 // bytes of a name
	// MaxEdges is the maximum number of edges that take connectors.
	MaxEdges = 8
	// MaxOtherEdges is larger, as tunnels stay at edges that drain while others take their place.
	MaxOtherEdges = 2 * MaxEdges
)

const (
	claimSecretLength = 43 // letters and digits: over 200 random bits
	maxClaim          = 64 // bytes
)

// Limits of a report, which must fit into one control message.
const (
	// MaxListed bounds the reported models of one upstream.
	MaxListed = 1000
	// maxListedAll and maxListedBytes bound the models of all upstreams together. The id of a model counts again
	// for its window, and for its status.
	maxListedAll   = 2000
	maxListedBytes = 128 << 10
)

// Check validates a hello. Its errors are logged by the connector.
func (h Hello) Check() error {
	for _, f := range []string{h.Connector, h.Secret, h.Instance, h.Name, h.Version, h.OS} {
		if len(f) > MaxField || !text.IsPrintable(f) {
			return fmt.Errorf("checking hello: a field is longer than %d bytes or not printable", MaxField)
		}
	}
	invalid := func(name string) bool { return !isName(name) }
	if len(h.OtherEdges) > MaxOtherEdges || slices.ContainsFunc(h.OtherEdges, invalid) {
		return fmt.Errorf("checking hello: its tunnels are at more than %d edges, or at one whose name is empty, longer "+
			"than %d bytes or not printable", MaxOtherEdges, MaxField)
	}
	if err := h.checkClaim(); err != nil {
		return err
	}
	if len(h.Upstreams) == 0 || len(h.Upstreams) > MaxUpstreams {
		return fmt.Errorf("checking hello: it names %d upstreams; 1 to %d are possible", len(h.Upstreams), MaxUpstreams)
	}
	if err := checkNames(h.Upstreams); err != nil {
		return fmt.Errorf("checking hello: %w", err)
	}
	unknown := func(name string) bool { return !slices.Contains(h.Upstreams, name) }
	if len(h.OneModel) > len(h.Upstreams) || slices.ContainsFunc(h.OneModel, unknown) {
		return errors.New("checking hello: one_model has an unknown upstream, or more names than there are upstreams")
	}
	if h.MaxRequests < 0 || h.MaxRequests > MaxRequestsLimit {
		return fmt.Errorf("checking hello: it takes %d requests at once; 1 to %d are possible", h.MaxRequests,
			MaxRequestsLimit)
	}
	if h.KeptPrompts != nil && *h.KeptPrompts < 0 {
		return fmt.Errorf("checking hello: it keeps %d bytes of prompts", *h.KeptPrompts)
	}
	if len(h.Routes) > MaxRoutes {
		return fmt.Errorf("checking hello: it has %d routes; up to %d are possible", len(h.Routes), MaxRoutes)
	}
	for i, r := range h.Routes {
		switch {
		case !slices.Contains(h.Upstreams, r.Upstream):
			return fmt.Errorf("checking hello: route %d has the unknown upstream %q", i+1, text.Short(r.Upstream))
		case r.Model == "" || len(r.Model) > MaxField || len(r.UpstreamModel) > MaxField:
			return fmt.Errorf("checking hello: the model of route %d is empty or longer than %d bytes", i+1, MaxField)
		case !text.IsPrintable(r.Model) || !text.IsPrintable(r.UpstreamModel):
			return fmt.Errorf("checking hello: the model of route %d is not printable", i+1)
		}
	}
	return nil
}

// checkClaim validates the claim and secret of a hello with a claim.
func (h Hello) checkClaim() error {
	switch {
	case h.Claim == "":
		return nil
	case h.Connector != "":
		return errors.New("checking hello: a claim and a connector's id are mutually exclusive")
	case len(h.Claim) > maxClaim || !text.IsPrintable(h.Claim):
		return fmt.Errorf("checking hello: the claim is longer than %d bytes or not printable", maxClaim)
	case len(h.Secret) != claimSecretLength || !alphanumeric(h.Secret, ""):
		return fmt.Errorf("checking hello: the secret of a claim is not %d of A-Z a-z 0-9", claimSecretLength)
	}
	return nil
}

// Check validates the edges that a gateway sends. Its errors are logged by the connector.
func (e Edges) Check() error {
	if len(e.List) > MaxEdges || e.Edge != "" && !isName(e.Edge) {
		return fmt.Errorf("checking the edges: there are more than %d, or the name of this edge is invalid", MaxEdges)
	}
	for i, edge := range e.List {
		host, port, err := net.SplitHostPort(edge.Server)
		if !isName(edge.Name) || !isName(edge.Server) || err != nil || host == "" || port == "" {
			return fmt.Errorf("checking the edges: a field of edge %d is longer than %d bytes or not printable, or its server "+
				"is not host:port", i+1, MaxField)
		}
	}
	return nil
}

// checkNames checks the names of upstreams, which must be unique.
func checkNames(names []string) error {
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if err := CheckUpstream(name); err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("duplicate upstream %q", name)
		}
		seen[name] = true
	}
	return nil
}

// CheckUpstream checks the name of an upstream: 1 to 64 of [A-Za-z0-9._-]. It is the Host
// of requests.
func CheckUpstream(name string) error {
	if name == "" || len(name) > 64 || !alphanumeric(name, "._-") {
		return fmt.Errorf("upstream name %q is not 1 to 64 of A-Z a-z 0-9 . _ -", text.Short(name))
	}
	return nil
}

// alphanumeric reports whether s consists of letters, digits and characters of others.
func alphanumeric(s, others string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return true
}

// Fit shortens the lists of models, windows and statuses to the limits of [Report.Check], and reports whether it had
// to. It does not modify the original lists.
func (r *Report) Fit() (shortened bool) {
	count, bytes := 0, 0
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		var fitting []string
		if u.Models != nil {
			fitting = make([]string, 0, min(len(u.Models), MaxListed))
		}
		var windows map[string]int
		var statuses map[string]string
		for _, id := range u.Models {
			size, tokens, status := len(id), u.Windows[id], u.Status[id]
			if tokens > 0 && tokens <= window.Max {
				size += len(id)
			} else {
				tokens = 0
			}
			if status == "loading" || status == "unloaded" {
				size += len(id)
			} else {
				status = ""
			}
			if !isName(id) || len(fitting) == MaxListed || count == maxListedAll || bytes+size > maxListedBytes {
				u.Open, shortened = true, true
				continue
			}
			count++
			bytes += size
			fitting = append(fitting, id)
			put(&windows, id, tokens)
			put(&statuses, id, status)
		}
		u.Models = fitting
		if len(windows) < len(u.Windows) || len(statuses) < len(u.Status) {
			u.Windows, u.Status, shortened = windows, statuses, true
		}
	}
	return shortened
}

// Check checks the limits of a report.
func (r Report) Check() error {
	if len(r.Upstreams) > MaxUpstreams {
		return fmt.Errorf("checking report: it names %d upstreams; up to %d are possible", len(r.Upstreams), MaxUpstreams)
	}
	names := make([]string, len(r.Upstreams))
	for i, u := range r.Upstreams {
		names[i] = u.Name
	}
	if err := checkNames(names); err != nil {
		return fmt.Errorf("checking report: %w", err)
	}
	if fitting := (Report{Upstreams: slices.Clone(r.Upstreams)}); fitting.Fit() {
		return fmt.Errorf("checking report: its models have invalid ids or windows, or are too many; up to %d of an "+
			"upstream, %d and %d bytes together are possible", MaxListed, maxListedAll, maxListedBytes)
	}
	invalid := func(n NotAt) bool { return !isName(n.Edge) || !isName(n.Reason) || n.Millis < 0 || n.Millis > maxNotAt }
	if len(r.NotAt) > MaxEdges || slices.ContainsFunc(r.NotAt, invalid) {
		return fmt.Errorf("checking report: it has more than %d edges, or one with an invalid name, reason or time", MaxEdges)
	}
	return nil
}

// isName reports whether a name, or the id of a model, is 1 to 256 bytes of printable text, as
// it is shown on pages and terminals.
func isName(name string) bool {
	return name != "" && len(name) <= MaxField && text.IsPrintable(name)
}
