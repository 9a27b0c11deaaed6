package store

import (
	"cmp"
	"iter"
	"slices"
	"sync"

	"github.com/postern-dev/postern/caddymodule/scope"
)

// maxAlsoAs limits the names of a deployment in addition to its public name.
const maxAlsoAs = 16

// Names returns the names of a deployment that are not patterns, its public name first.
func (d Deployment) Names() []string {
	names := []string{d.Name}
	for _, name := range d.AlsoAs {
		if scope.IsName(name) {
			names = append(names, name)
		}
	}
	return names
}

// Resolve returns the deployment of a name that a client asks for: of those with a public name in the
// scope, the first one by the name's kind:
//
//   - public names
//   - exact names in also_as
//   - both of these by their canonical form, if exactly one deployment has it
//   - patterns in also_as, those with the most literal characters first, then by their text
//
// Deployments out of scope do not matter, so that a client cannot detect them. Only if no deployment
// in the scope fits, one out of scope is returned. A public name takes no lock and allocates nothing.
func (s *Store) Resolve(account, asked string, in scope.Scope) (Deployment, bool) {
	v := s.view.Load()
	public, ok := deploymentKind.lookup(v, account, asked)
	n := v.names.value(account)
	if ok && in.Allows(asked) || n == nil {
		return public.Deployment, ok
	}
	n.read.Do(func() { n.build(deploymentKind.owned(v, account)) })
	r := n.find(asked, in.Allows)
	if r == nil && !ok {
		r = n.find(asked, func(string) bool { return true })
	}
	if r == nil {
		r = public
	}
	return r.Deployment, ok || r != public
}

// names finds the deployments of an account by names that are not public ones. It is built when it is
// first used after a change of these deployments.
type names struct {
	read      sync.Once
	exact     map[string]*deploymentRecord
	canonical map[string][]*deploymentRecord // also by public names
	patterns  []namePattern                  // in the order in which they are tried
}

type namePattern struct {
	text string
	of   *deploymentRecord
}

func (n *names) build(deployments iter.Seq[*deploymentRecord]) {
	n.exact, n.canonical = make(map[string]*deploymentRecord), make(map[string][]*deploymentRecord)
	for r := range deployments {
		for _, name := range r.Names() {
			if form := scope.Canonical(name); !slices.Contains(n.canonical[form], r) {
				n.canonical[form] = append(n.canonical[form], r)
			}
			if name != r.Name {
				n.exact[name] = r
			}
		}
		for _, text := range r.AlsoAs {
			if !scope.IsName(text) {
				n.patterns = append(n.patterns, namePattern{text, r})
			}
		}
	}
	slices.SortFunc(n.patterns, func(a, b namePattern) int {
		return cmp.Or(scope.Literals(b.text)-scope.Literals(a.text), cmp.Compare(a.text, b.text))
	})
}

// find returns the deployment of a name, of those whose public names are allowed, or nil.
func (n *names) find(asked string, allowed func(string) bool) *deploymentRecord {
	if len(asked) > scope.MaxName { // bounds the work
		return nil
	}
	if r := n.exact[asked]; r != nil && allowed(r.Name) {
		return r
	}
	var fit *deploymentRecord
	fits := 0
	for _, r := range n.canonical[scope.Canonical(asked)] {
		if allowed(r.Name) {
			fit, fits = r, fits+1
		}
	}
	if fits == 1 {
		return fit
	}
	for _, p := range n.patterns {
		if scope.Match(p.text, asked) && allowed(p.of.Name) {
			return p.of
		}
	}
	return nil
}

func alsoAsPath(account, name string) string { return dirAlsoAs + account + "/" + name }

func alsoAsPaths(account string, names []string) (paths []string) {
	for _, name := range names {
		paths = append(paths, alsoAsPath(account, name))
	}
	return paths
}

// checkAlsoAs checks the form of the names in also_as.
func checkAlsoAs(d Deployment) error {
	if len(d.AlsoAs) > maxAlsoAs {
		return Errorf(ErrInvalid, "also_as has %d names, more than %d: a pattern such as claude-* stands for many",
			len(d.AlsoAs), maxAlsoAs)
	}
	for i, name := range d.AlsoAs {
		switch err := scope.CheckPattern(name); {
		case err != nil:
			return Errorf(ErrInvalid, "also_as: %v", err)
		case name == d.Name:
			return Errorf(ErrInvalid, "also_as has %q, which is the deployment's own name: remove it there", name)
		case slices.Contains(d.AlsoAs[:i], name):
			return Errorf(ErrInvalid, "also_as has %q twice: remove one", name)
		}
	}
	return nil
}

// takeNames records the names of a deployment, unless another one has them, and checks its fallback. The
// records make concurrent writes conflict.
func takeNames(t *tx, d Deployment, before *deploymentRecord) error {
	taken := func(name, other string) error {
		return Errorf(ErrExists, "the deployment %q of the account %q has the name %q: choose another name, "+
			"or remove it there", other, d.Account, name)
	}
	var old Deployment
	var other nameRecord
	if before != nil {
		old = before.Deployment
	} else if t.read(alsoAsPath(d.Account, d.Name), &other) {
		return taken(d.Name, other.ID)
	}
	for _, name := range d.AlsoAs {
		path := alsoAsPath(d.Account, name)
		switch {
		case slices.Contains(old.AlsoAs, name):
			continue
		case t.read(path, &other):
			return taken(name, other.ID)
		case t.get(deploymentKind.path(d.Account, name)).Exists(): // of a name, not a pattern
			return taken(name, name)
		}
		t.put(path, &nameRecord{ID: d.Name})
	}
	free := slices.DeleteFunc(slices.Clone(old.AlsoAs), func(name string) bool { return slices.Contains(d.AlsoAs, name) })
	t.delete(alsoAsPaths(d.Account, free)...)
	switch { // a fallback may have been removed since it was set
	case d.Fallback == "" || d.Fallback == old.Fallback:
	case d.Fallback == d.Name:
		return Errorf(ErrInvalid, "the deployment %q cannot be its own fallback", d.Name)
	case deploymentKind.load(t, d.Account, d.Fallback) == nil:
		return Errorf(ErrInvalid, "the fallback %.140q is not a deployment of the account %q: "+
			"use a public name from the list of deployments", d.Fallback, d.Account)
	}
	return nil
}
