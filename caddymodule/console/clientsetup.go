package console

import (
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/connector/clients"
)

var (
	newSetupTab = &tab{path: "keys/setup", name: "client-setup", title: "Set up a client", data: newSetupData}
	setupCode   = &tab{name: "client-code", title: "Set up a client"}
)

// setupForm is the form of a set-up code: a client, its model, and the fields of its key.
type setupForm struct {
	keyForm
	Client  string
	Clients []clients.Client
	Models  []setupModel
}

// setupModel is a model of the form, and whether its context window is too small for Claude Code, which needs the most.
type setupModel struct{ Name, Small string }

// newSetupData shows the user's input, or the defaults of the account.
func newSetupData(v *visit) any {
	f := setupForm{keyForm: newKeyData(v).(keyForm), Client: v.r.FormValue("client")}
	f.Page = "/console/keys/setup"
	byHand := func(c clients.Client) bool { return c.File == nil }
	f.Clients = slices.DeleteFunc(slices.Clone(clients.All()), byHand)
	for _, d := range load(v, v.Manage.Deployments) {
		if d.Chats() {
			f.Models = append(f.Models, setupModel{d.Name, clients.Find("claude").TooSmall(d.ContextWindow)})
		}
	}
	slices.SortStableFunc(f.Models, func(a, b setupModel) int { return strings.Compare(a.Small, b.Small) })
	return f
}

// setupCodePage shows a set-up code, once.
type setupCodePage struct {
	manage.CreatedSetup
	Title, Model string // of the client
}

func createSetup(v *visit) error {
	f := newKeyForm(v)
	usable := func(d manage.Deployment) bool { return d.Name == f.DefaultModel }
	if models, err := v.Manage.KeyModels(v.ctx, f.bounds(v)); err == nil && !slices.ContainsFunc(models, usable) {
		return badForm("Choose a model that the key may use.")
	}
	created, err := v.Manage.CreateSetup(v.ctx, func(c *manage.CreateSetup) error {
		c.Client, c.Name = v.typed("client"), f.Name
		return f.fill(v, &c.KeyFields)
	})
	return v.show(setupCode, setupCodePage{created, clients.Find(created.Client).Title, f.DefaultModel}, err)
}
