package caddymodule

import (
	"fmt"
	"os"

	"github.com/postern-dev/postern/caddymodule/cli"
	"github.com/postern-dev/postern/caddymodule/manage"
)

// welcome tells the person who starts a gateway that has a console, but no user
// yet, how to come in: once in a process, however often it is reloaded. The
// link goes to a terminal only: a journal, and the log of a container, are read
// by others.
func (a *App) welcome(open *services) {
	if !a.console || open.store.UserCount() > 0 || a.store.val.welcomed.Swap(true) {
		return
	}
	program := cli.ProgramName(os.Args[0])
	if !a.store.val.terminal {
		fmt.Fprintf(a.store.val.messages, "The console has no user yet. `%s gateway setup-link` prints a link that makes the first.\n", program)
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

`, link.URL, program)
}

// operator is the caller of what the gateway itself does, and of the admin
// endpoint.
func operator(name string) manage.Caller { return manage.Caller{Name: name, Operator: true} }
