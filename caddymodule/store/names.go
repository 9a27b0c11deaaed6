package store

import (
	"slices"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/scope"
)

// maxAlsoAs limits the names of a deployment in addition to its public name.
const maxAlsoAs = 16

// Names returns the names of a deployment that are not patterns, its public name first.
func (d Deployment) Names() []string {
	return slices.DeleteFunc(append([]string{d.Name}, d.AlsoAs...), scope.IsPattern)
}

// Resolve returns the deployment of a name that a client asks for. Of the deployments in the scope, it is the
// first one of these:
//
//   - the one with this public name
//   - the one with this name in also_as
//   - the one with such a name in another case, or with or without ":latest", if there is exactly one
//   - the one with a matching pattern in also_as: with the most literal characters, then the first by text
//
// Deployments out of scope do not matter, so that a client cannot detect them. Only if none fits, the one with
// this public name is returned, although it is out of scope. A public name takes no lock and allocates nothing.
func (s *Store) Resolve(account, asked string, in scope.Scope) (Deployment, bool) {
	v := s.view.Load()
	public, ok := deploymentKind.lookup(v, account, asked)
	if ok && in.Allows(asked) || len(asked) > scope.MaxName { // bounds the work
		return public.Deployment, ok
	}
	similar, similars := public, 0
	matching, pattern := public, ""
	same := func(name string) bool { return scope.Compare(name, asked) == 0 }
	for r := range deploymentKind.owned(v, account) {
		if !in.Allows(r.Name) {
			continue
		}
		if slices.Contains(r.AlsoAs, asked) {
			return r.Deployment, true
		}
		if same(r.Name) || slices.ContainsFunc(r.AlsoAs, same) {
			similar, similars = r, similars+1
		}
		for _, p := range r.AlsoAs {
			if scope.Match(p, asked) && (pattern == "" || scope.ComparePatterns(p, pattern) < 0) {
				matching, pattern = r, p
			}
		}
	}
	if similars == 1 {
		return similar.Deployment, true
	}
	return matching.Deployment, ok || pattern != ""
}

// checkAlsoAs checks the form of the names in also_as.
func checkAlsoAs(d Deployment) error {
	if len(d.AlsoAs) > maxAlsoAs {
		return Errorf(ErrInvalid, "also_as has %d names, but the maximum is %d: use a pattern such as claude-* for several",
			len(d.AlsoAs), maxAlsoAs)
	}
	for i, name := range d.AlsoAs {
		if err := scope.CheckPattern(name); err != nil {
			return Errorf(ErrInvalid, "also_as: %v", err)
		}
		if name == d.Name || slices.Contains(d.AlsoAs[:i], name) {
			return Errorf(ErrInvalid, "the deployment %q has the name %q twice: remove it from also_as", d.Name, name)
		}
	}
	return nil
}

// checkNames checks that no other deployment of the account has a name of d, and that its judge and its fallback exist.
// Only what has changed is checked: they can be removed later.
func checkNames(t *tx, d Deployment, before *deploymentRecord) error {
	if before == nil || !slices.Equal(d.AlsoAs, before.AlsoAs) {
		// Read the mark before the deployments: one that gets a name after they were read has changed it.
		t.get(markNames(d.Account))
		t.mark(markNames(d.Account))
		for _, other := range deploymentKind.loadAll(t, d.Account) {
			if other.Name == d.Name {
				continue
			}
			for _, name := range append([]string{other.Name}, other.AlsoAs...) {
				if name == d.Name || slices.Contains(d.AlsoAs, name) {
					return Errorf(ErrExists, "the deployment %q has the name %q: choose another name, or remove it there",
						other.Name, name)
				}
			}
		}
	}
	if before == nil || d.Options.Safeguards != before.Options.Safeguards {
		if err := checkJudge(t, d); err != nil {
			return err
		}
	}
	if d.Fallback == "" || before != nil && d.Fallback == before.Fallback {
		return nil
	}
	fallback := deploymentKind.load(t, d.Account, d.Fallback)
	switch {
	case d.Fallback == d.Name:
		return InField("fallback", Errorf(ErrInvalid, "the deployment %q cannot be its own fallback", d.Name))
	case fallback != nil && fallback.ModelKind() != d.ModelKind():
		return InField("fallback", Errorf(ErrInvalid,
			"the fallback %q is of a different kind from the deployment %q: choose "+
				"one of the same kind", d.Fallback, d.Name))
	case fallback == nil:
		return Errorf(ErrInvalid, "the fallback %.140q is not a deployment of the account %q: "+
			"use a public name from the list of deployments", d.Fallback, d.Account)
	}
	return nil
}

// checkJudge checks that the judge of d is a chat model.
func checkJudge(t *tx, d Deployment) error {
	judge := d.Options.Safeguards
	if judge == "" || judge == compat.SafeguardsSelf {
		return nil
	}
	if r := deploymentKind.load(t, d.Account, judge); r == nil || r.ModelKind() != ChatModel {
		return Errorf(ErrInvalid, "option \"safeguards\": %.140q is not a chat model of the account %q: "+
			"use a public name from the list of deployments, or self", judge, d.Account)
	}
	return nil
}
