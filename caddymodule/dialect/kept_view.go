package dialect

// Scope decides which models a key may use.
type Scope interface {
	Allows(model string) bool
}

// KeptView is what one request may see of the kept responses: those of its
// owner that were made by a model within its scope. The zero view keeps
// nothing.
type KeptView struct {
	all   *KeptResponses
	owner KeptOwner
	scope Scope
}

// View returns the owner's view of the responses that models within the scope
// have made.
func (k *KeptResponses) View(owner KeptOwner, scope Scope) KeptView {
	return KeptView{k, owner, scope}
}

// keeps reports whether responses are kept at all.
func (v KeptView) keeps() bool { return v.all != nil }

// Keep keeps a copy of a response under its id.
func (v KeptView) Keep(id string, r KeptResponse) { v.all.keep(keptID{v.owner, id}, r) }

// Response returns a kept response, whose bytes must not be changed. ok is
// false if the request may not see it, too.
func (v KeptView) Response(id string) (r KeptResponse, ok bool) {
	if !v.keeps() {
		return KeptResponse{}, false
	}
	if r, ok = v.all.response(keptID{v.owner, id}); !ok || !v.scope.Allows(r.Model) {
		return KeptResponse{}, false
	}
	return r, true
}

// item returns an item of a kept response, of its input or output.
func (v KeptView) item(id string) (raw []byte, ok bool) {
	if !v.keeps() {
		return nil, false
	}
	raw, model, ok := v.all.item(keptID{v.owner, id})
	if !ok || !v.scope.Allows(model) {
		return nil, false
	}
	return raw, true
}

// Delete removes a response that Response returns.
func (v KeptView) Delete(id string) {
	if _, ok := v.Response(id); ok {
		v.all.delete(keptID{v.owner, id})
	}
}
