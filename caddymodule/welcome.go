package caddymodule

import (
	"fmt"
	"os"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// welcome tells the person who starts a gateway that has a console, but no user
// yet, how to come in: once in a process, however often it is reloaded. The
// link goes to the terminal and not to the log, which others may read.
func (a *App) welcome(open *services) {
	if !a.console || open.store.UserCount() > 0 || a.store.val.welcomed.Swap(true) {
		return
	}
	service, err := a.Manage()
	if err != nil {
		a.logger.Warn("making the setup link", "error", err)
		return
	}
	link, err := service.SetupLink(manage.WithCaller(a.ctx, operator("gateway start")))
	if err != nil {
		a.logger.Warn("the console has no user yet, and no link for the first could be made", "error", err)
		return
	}
	fmt.Fprintf(a.store.val.messages, `
The console has no user yet. Open this link within 15 minutes to become the first:

  %s

It works once; `+"`%s gateway setup-link`"+` makes another one.

`, link.URL, commandName(os.Args[0]))
}

// operator is the caller of what the gateway itself does, and of the admin
// endpoint.
func operator(name string) manage.Caller { return manage.Caller{Name: name, Operator: true} }
