package manage

import (
	"cmp"
	"context"
	"net/http"
	"reflect"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Operation is an operation of the management API. The API itself, docs/openapi.json, `caddy gateway …`,
// docs/cli.md, and the rights of roles and tokens are made from it.
type Operation struct {
	Method, Path string
	// Help is the summary in docs/openapi.json, and the short help of the command.
	Help string
	// Rights are the rights of management tokens. Any of them allows the operation. 0: no token may perform it.
	Rights store.Rights
	// Roles are the roles of users that allow it. 0: only operators may perform it.
	Roles Roles
	About Subject
	action
}

// Subject is what an operation reads or changes.
type Subject int

const (
	InAccount Subject = iota // records of the account that the request names
	OfGateway                // the gateway; the account makes no difference
	OfUser                   // the sessions of the caller, who must be a user
	OfEdge                   // what this gateway knows; operators may read it although the gateway does not serve
)

// action is what an operation does.
type action struct {
	Status int // of success
	// Request and Answer are the types of the request and of the answer.
	Request, Answer reflect.Type
	fields          fieldList
	// serve returns a value to encode, of the type Answer.
	serve func(s *Service, w http.ResponseWriter, r *http.Request) (any, error)
}

const (
	get, post, put, patch, remove = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete

	read, keys, connectors, deployments = store.RightRead, store.RightKeys, store.RightConnectors, store.RightDeployments

	ok, created = http.StatusOK, http.StatusCreated
)

// row returns a row of the table.
func row(method, path, help string, rights store.Rights, roles Roles, about Subject, a action) Operation {
	return Operation{method, path, help, rights, roles, about, a}
}

// operations are all operations of the API.
var operations = []Operation{
	row(get, "/status", "Shows the listener, connectors, deployments and counters", read, readers, OfEdge,
		callPlain(ok, (*Service).Status)),
	row(get, "/backup", "Writes a backup of the running gateway's database", 0, operators, OfGateway,
		callPlain(ok, (*Service).backup)),
	row(get, "/identity", "Shows the gateway's pin, and how many connectors have it", 0, operators, OfGateway,
		callPlain(ok, (*Service).Identity)),
	row(post, "/identity/rotate", "Replaces the gateway's identity: each connector must be paired again", 0, operators,
		OfGateway, callPlain(ok, (*Service).RotateIdentity)),
	row(get, "/checklist", "Shows the progress of the account towards its first request", read, readers, InAccount,
		callPlain(ok, (*Service).Checklist)),

	row(get, "/keys", "Lists API keys", read|keys, everyone, InAccount, callPlain(ok, (*Service).Keys)),
	row(post, "/keys", "Creates an API key and shows it once", keys, owners, InAccount,
		callCreate((*Service).CreateKey)),
	row(get, "/keys/{id}", "Shows an API key", read|keys, everyone, InAccount, callRecord(ok, (*Service).Key)),
	row(patch, "/keys/{id}", "Changes an API key", keys, owners, InAccount, callEdit(ok, (*Service).EditKey)),
	row(remove, "/keys/{id}", "Revokes an API key", keys, owners, InAccount, call(ok, (*Service).DeleteKey)),
	row(get, "/keys/{id}/limits", "Shows the limits of an API key, and what it has used", read|keys, everyone, InAccount,
		callRecord(ok, (*Service).KeyLimits)),
	row(get, "/keys/{id}/people", "Shows the usage of the people behind an API key", read|keys, everyone, InAccount,
		call(ok, (*Service).People)),
	row(post, "/keys/{id}/forget", "Deletes the usage of a person behind an API key, and the name in requests", keys,
		owners, InAccount, call(ok, (*Service).ForgetPerson)),
	row(post, "/keys/{id}/rotate", "Creates a new secret for an API key and shows it once", keys, owners, InAccount,
		call(ok, (*Service).RotateKey)),
	row(post, "/keys/{id}/disable", "Disables an API key until it is enabled", keys, owners, InAccount,
		callRecord(ok, (*Service).DisableKey)),
	row(post, "/keys/{id}/enable", "Enables a disabled API key", keys, owners, InAccount,
		callRecord(ok, (*Service).EnableKey)),
	row(get, "/groups", "Lists groups, and what their keys have used", read|keys, everyone, InAccount,
		callPlain(ok, (*Service).Groups)),
	row(post, "/groups", "Creates a group, which bounds the keys of its members", keys, admins, InAccount,
		callCreate((*Service).CreateGroup)),
	row(get, "/groups/{id}", "Shows a group, and what its keys have used", read|keys, everyone, InAccount,
		callRecord(ok, (*Service).Group)),
	row(patch, "/groups/{id}", "Changes a group", keys, admins, InAccount, callEdit(ok, (*Service).EditGroup)),
	row(remove, "/groups/{id}", "Removes a group", keys, admins, InAccount, callRecord(ok, (*Service).RemoveGroup)),
	row(post, "/setups", "Creates a code that sets up a client with a new API key", keys, owners, InAccount,
		callCreate((*Service).CreateSetup)),

	row(get, "/connectors", "Lists connectors and their live state", read|connectors, readers, InAccount,
		callPlain(ok, (*Service).Connectors)),
	row(post, "/connectors", "Creates a connector and shows its tunnel token once", connectors, admins, InAccount,
		call(created, (*Service).CreateConnector)),
	row(get, "/connectors/{id}", "Shows a connector, its models and its deployments", read|connectors, readers, InAccount,
		callRecord(ok, (*Service).Connector)),
	row(patch, "/connectors/{id}", "Renames a connector", connectors, admins, InAccount,
		call(ok, (*Service).RenameConnector)),
	row(remove, "/connectors/{id}", "Removes a connector", connectors, admins, InAccount,
		callRecord(ok, (*Service).RemoveConnector)),
	row(get, "/connectors/{id}/models", "Asks the model servers of a connector for their models",
		read|connectors|deployments, readers, InAccount, callRecord(ok, (*Service).UpstreamModels)),
	row(post, "/connectors/{id}/rotate", "Creates a new tunnel token for a connector and shows it once",
		connectors, admins, InAccount, call(ok, (*Service).RotateConnector)),

	row(get, "/pairings", "Lists pairing codes and the devices that wait for approval", connectors, admins, InAccount,
		callPlain(ok, (*Service).Pairings)),
	row(post, "/pairings", "Creates a pairing code for one device", connectors, admins, InAccount,
		callPlain(created, (*Service).StartPairing)),
	row(post, "/pairings/approve", "Approves a waiting device", connectors, admins, InAccount,
		call(ok, (*Service).ApprovePairing)),
	row(post, "/pairings/deny", "Denies a waiting device, or cancels a code", connectors, admins, InAccount,
		call(ok, (*Service).DenyPairing)),

	row(get, "/offers", "Lists the models of online connectors that no deployment publishes", read|deployments, readers,
		InAccount, callPlain(ok, (*Service).knownOffers)),
	row(get, "/deployments", "Lists deployments and their live state", read|deployments, everyone, InAccount,
		call(ok, (*Service).MatchScope)),
	row(put, "/deployments/{name}", "Publishes a model, or changes its route", deployments, admins, InAccount,
		callEdit(ok, (*Service).SetDeployment)),
	row(remove, "/deployments/{name}", "Removes a deployment", deployments, admins, InAccount,
		callRecord(ok, (*Service).RemoveDeployment)),
	row(post, "/deployments/{name}/test", "Sends two requests to a model", deployments, admins, InAccount,
		callRecord(ok, (*Service).TestDeployment)),
	row(post, "/deployments/{name}/measure", "Measures the context window of a model with one long prompt", deployments,
		admins, InAccount, callRecord(ok, (*Service).MeasureDeployment)),

	row(get, "/activity", "Lists requests, without prompts and answers", read, everyone, InAccount,
		tableAction("activity", (*Service).Activity, nextRequests)),
	row(get, "/activity/{id}", "Shows a request, without prompt and answer", read, everyone, InAccount,
		callRecord(ok, (*Service).Request)),
	row(get, "/usage", "Shows requests and tokens by key, model, user and day", read, everyone, InAccount,
		tableAction("usage", (*Service).Usage, whole)),
	row(get, "/audit", "Shows who changed what, when and from where", read, readers, InAccount,
		tableAction("audit", (*Service).Audit, whole)),

	row(get, "/users", "Lists users of the console", read, readers, InAccount, callPlain(ok, (*Service).Users)),
	row(post, "/users", "Adds a user of the console", 0, admins, InAccount, call(created, (*Service).AddUser)),
	row(patch, "/users/{id}", "Changes the role of a user", 0, admins, InAccount, call(ok, (*Service).SetUser)),
	row(remove, "/users/{id}", "Removes a user of the console", 0, admins, InAccount,
		call(ok, (*Service).RemoveUser)),
	row(post, "/users/{id}/link", "Lets a person at an issuer sign in as a user", 0, operators, InAccount,
		call(ok, (*Service).LinkUser)),
	row(post, "/users/{id}/unlink", "Takes an identity at an issuer from a user", 0, operators, InAccount,
		call(ok, (*Service).UnlinkUser)),
	row(post, "/users/{id}/recovery-link", "Creates a link for a user to set a new password", 0, admins, InAccount,
		callRecord(created, (*Service).RecoveryLink)),
	row(get, "/invitations", "Lists the open invitations, without their links", read, readers, InAccount,
		callPlain(ok, (*Service).Invitations)),
	row(post, "/invitations", "Creates a link for a new user to join the account", 0, admins, InAccount,
		call(created, (*Service).Invite)),
	row(remove, "/invitations/{id}", "Revokes an invitation", 0, admins, InAccount,
		callRecord(ok, (*Service).RevokeInvitation)),
	row(post, "/setup-link", "Creates the link for the first user of the console", 0, operators, OfGateway,
		callPlain(created, (*Service).SetupLink)),

	row(get, "/tokens", "Lists management tokens", read, everyone, InAccount, callPlain(ok, (*Service).Tokens)),
	row(post, "/tokens", "Creates a management token and shows it once", 0, owners, InAccount,
		call(created, (*Service).CreateToken)),
	row(remove, "/tokens/{id}", "Revokes a management token", 0, owners, InAccount,
		callRecord(ok, (*Service).RevokeToken)),
	row(get, "/sessions", "Lists the caller's sessions", read, everyone, OfUser, callPlain(ok, (*Service).Sessions)),
	row(remove, "/sessions", "Ends all sessions of the caller except the current one", 0, everyone, OfUser,
		callPlain(ok, (*Service).RevokeSessions)),
	row(remove, "/sessions/{id}", "Ends a session of the caller", 0, everyone, OfUser,
		callRecord(ok, (*Service).RevokeSession)),
	row(post, "/sessions/confirm", "Confirms the current session, with the password of its user", 0, everyone, OfUser,
		call(ok, (*Service).ConfirmSession)),

	row(get, "/edges", "Lists the edges of the cluster", read, readers, OfEdge, callPlain(ok, (*Service).Edges)),
	row(remove, "/edges/{name}", "Removes an edge that will not come back", 0, admins, OfGateway,
		call(ok, (*Service).RemoveEdge)),
	row(post, "/edges/{name}/drain", "Makes an edge not ready, so that balancers use the others", 0, admins, OfGateway,
		callRecord(ok, (*Service).DrainEdge)),
	row(post, "/edges/{name}/undrain", "Makes a draining edge ready again", 0, admins, OfGateway,
		callRecord(ok, (*Service).UndrainEdge)),

	row(post, "/webhooks/test", "Sends a test to each webhook", connectors, admins, OfGateway,
		callPlain(ok, (*Service).TestWebhooks)),

	row(get, "/accounts", "Lists accounts", read, readers, OfGateway, callPlain(ok, (*Service).Accounts)),
	row(post, "/accounts", "Adds an account", 0, operators, OfGateway, call(created, (*Service).CreateAccount)),
	row(patch, "/accounts/{id}", "Changes an account's limits, and what new keys get", 0, admins, OfGateway,
		callEdit(ok, (*Service).SetAccount)),
	row(remove, "/accounts/{id}", "Removes an empty account", 0, operators, OfGateway,
		callRecord(ok, (*Service).RemoveAccount)),
}

// Fields returns the fields of the request, without "account", which all requests accept.
func (a action) Fields() []Field { return a.fields }

// Operations returns all operations.
func Operations() []Operation { return operations }

// FindOperation returns the operation with a method and a path, like "POST /keys". For others it returns the zero
// Operation, which only operators may perform.
func FindOperation(route string) Operation {
	o, _ := find(operations, func(o Operation) bool { return o.Method+" "+o.Path == route })
	return o
}

// call decodes a request and calls do.
func call[R, A any](status int, do func(s *Service, ctx context.Context, request R) (A, error)) action {
	return newAction[R, A](status, false, func(s *Service, ctx context.Context, r *http.Request, d decoded[R]) (A, error) {
		for field, value := range reflect.ValueOf(&d.Request).Elem().Fields() {
			if field.Tag.Get("path") != "" {
				value.SetString(recordOf(r))
			}
		}
		return do(s, ctx, d.Request)
	})
}

// callPlain is [call] for requests without fields.
func callPlain[A any](status int, do func(s *Service, ctx context.Context) (A, error)) action {
	return call(status, func(s *Service, ctx context.Context, _ struct{}) (A, error) { return do(s, ctx) })
}

// callRecord is [call] for requests that only name a record, in the path.
func callRecord[A any](status int, do func(s *Service, ctx context.Context, idOrName string) (A, error)) action {
	type record struct {
		ID string `json:"-" path:"record"`
	}
	return call(status, func(s *Service, ctx context.Context, r record) (A, error) { return do(s, ctx, r.ID) })
}

// callEdit is [call] for requests that change the fields F of a record, which the path names. do gets a function
// that applies the changes.
func callEdit[F, A any](status int,
	do func(s *Service, ctx context.Context, idOrName string, edit func(*F) error) (A, error),
) action {
	return newAction[F, A](status, true, func(s *Service, ctx context.Context, r *http.Request, d decoded[F]) (A, error) {
		return do(s, ctx, recordOf(r), d.edit)
	})
}

// callCreate is [callEdit] for a new record, whose fields have defaults.
func callCreate[F, A any](do func(s *Service, ctx context.Context, edit func(*F) error) (A, error)) action {
	return newAction[F, A](created, false,
		func(s *Service, ctx context.Context, _ *http.Request, d decoded[F]) (A, error) {
			return do(s, ctx, d.edit)
		})
}

// newAction returns the action that decodes a request and calls do. edit: the request has the changed fields of a
// record.
func newAction[R, A any](status int, edit bool,
	do func(s *Service, ctx context.Context, r *http.Request, d decoded[R]) (A, error),
) action {
	a := action{
		Status: status, Request: reflect.TypeFor[R](), Answer: reflect.TypeFor[A](),
		fields: requestFields(reflect.TypeFor[R](), edit),
	}
	a.serve = func(s *Service, w http.ResponseWriter, r *http.Request) (any, error) {
		d, err := decodeRequest[R](w, r, a.fields)
		if err != nil {
			return nil, err
		}
		ctx, err := inAccount(r.Context(), d.Account)
		if err != nil {
			return nil, err
		}
		return do(s, ctx, r, d)
	}
	return a
}

// recordOf returns the record that the path of a request names.
func recordOf(r *http.Request) string { return cmp.Or(r.PathValue("id"), r.PathValue("name")) }

// knownOffers is [Service.Offers] without the reason why some are missing.
func (s *Service) knownOffers(ctx context.Context) ([]Offer, error) {
	offers, _, err := s.Offers(ctx)
	return offers, err
}
