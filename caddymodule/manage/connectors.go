package manage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/downloads"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// The states of a connector.
const (
	Online  = "online"
	Offline = "offline"
)

// Connector is a listed connector. The fields from Transport on
// describe its live tunnel and are absent while it is offline. LastSeenAt is absent
// while it is online, and so is LastTunnel.
type Connector struct {
	store.Connector
	State     string `json:"state" column:"STATE"`
	Transport string `json:"transport,omitempty" column:"TRANSPORT"`
	Remote    string `json:"remote,omitempty" column:"REMOTE"`
	Version   string `json:"version,omitempty" column:"VERSION"`
	// NewerVersion is the version of the gateway, if that of the connector is older.
	NewerVersion string `json:"newer_version,omitempty"`
	// Update is the line that replaces the program of such a connector, if the gateway hands one out for its system.
	Update    string     `json:"update,omitempty"`
	OS        string     `json:"os,omitempty"`
	Upstreams []Upstream `json:"upstreams,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
	// Edge is the name of this gateway in its cluster. State is that of the tunnel to it.
	Edge string `json:"edge,omitempty"`
	// NotAt are the other gateways of the cluster without a tunnel of the connector.
	NotAt []tunnel.NotAt `json:"not_at,omitempty"`
	// RTT is the tunnel's smoothed round-trip time in milliseconds.
	RTT float64 `json:"rtt_ms,omitempty"`
	// Active counts the running requests of the tunnel.
	Active int `json:"active,omitempty"`
	// MaxRequests is the limit of Active.
	MaxRequests int `json:"max_requests,omitempty"`
}

// Shown returns what the tunnel shows, or the last one has shown.
func (c Connector) Shown() store.LastTunnel {
	if c.LastTunnel != nil {
		return *c.LastTunnel
	}
	return store.LastTunnel{Remote: c.Remote, Version: c.Version, OS: c.OS}
}

// The states of an upstream.
const (
	Reachable = "reachable"
	Down      = "down"
	Unknown   = "unknown" // its connector has not reported it yet
)

// Upstream is the state of a model server, as reported by its connector.
type Upstream struct {
	Name  string     `json:"name"`
	State string     `json:"state"`
	Since *time.Time `json:"since,omitempty"` // of State
	// Models is the number of listed models; nil: the server has no list.
	Models *int `json:"models,omitempty"`
	// OneModel: the server loads one model at a time.
	OneModel bool    `json:"one_model_at_a_time,omitempty"`
	Loaded   *Loaded `json:"loaded,omitempty"` // nil: it may load several models at a time
}

// Loaded is the model that a server has loaded which loads one at a time, and its swaps, as far as requests of this
// gateway show that.
type Loaded struct {
	Model string `json:"model,omitempty"` // its name on the server; "": not known
	Swaps int    `json:"swaps"`
	// SwapMillis is the time that swaps took: from the first request for a model to the start of an answer.
	SwapMillis float64 `json:"swap_ms"`
}

// Took describes the swaps, for example "5 swaps took 42s". It is "" without swaps.
func (l Loaded) Took() string {
	took := time.Duration(l.SwapMillis * float64(time.Millisecond)).Round(time.Second)
	switch l.Swaps {
	case 0:
		return ""
	case 1:
		return "1 swap took " + took.String()
	}
	return fmt.Sprintf("%d swaps took %s", l.Swaps, took)
}

// loaded returns the state of a model server that loads one model at a time.
func (s *Service) loaded(account, connector, upstream string) *Loaded {
	state := s.server(account, connector, upstream)
	return &Loaded{state.Loaded, state.Swaps, state.Swapping.Seconds() * 1000}
}

// String describes the upstream, for example "ollama (12 models, one at a time, qwen3 is loaded, 5 swaps took 42s)".
func (u Upstream) String() string {
	var facts []string
	switch {
	case u.State == Down:
		facts = append(facts, "down")
	case u.Models != nil && *u.Models == 1:
		facts = append(facts, "1 model")
	case u.Models != nil:
		facts = append(facts, fmt.Sprintf("%d models", *u.Models))
	}
	if u.OneModel {
		facts = append(facts, "one at a time")
	}
	if u.Loaded != nil && u.Loaded.Model != "" {
		facts = append(facts, u.Loaded.Model+" is loaded")
	}
	if u.Loaded != nil && u.Loaded.Swaps > 0 {
		facts = append(facts, u.Loaded.Took())
	}
	if len(facts) == 0 {
		return u.Name
	}
	return u.Name + " (" + strings.Join(facts, ", ") + ")"
}

func upstreamOf(u tunnel.UpstreamState) Upstream {
	v := Upstream{Name: u.Name, State: Unknown, OneModel: u.OneModel}
	if !u.Known {
		return v
	}
	v.Since = &u.Since
	if v.State = Reachable; u.Down() {
		v.State = Down
		return v
	}
	if u.Models != nil {
		n := len(u.Models)
		v.Models = &n
	}
	return v
}

// CreateConnector asks for a new connector.
type CreateConnector struct {
	Name string `json:"name" need:"required" help:"A name of your choice for the machine"`
}

// CreatedConnector is the answer to [CreateConnector] and [RotateConnector]. The token is in no other
// answer.
type CreatedConnector struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	TunnelToken string `json:"tunnel_token"`
	// PreviousUntil is the end of the token before a rotation.
	PreviousUntil *time.Time `json:"previous_until,omitempty"`
	// Unconfirmed is set if edges may still accept the ended token.
	Unconfirmed *UnconfirmedAnswer `json:"unconfirmed,omitempty"`
}

// CreateConnector creates a connector and its tunnel token.
func (s *Service) CreateConnector(ctx context.Context, c CreateConnector) (CreatedConnector, error) {
	return change(ctx, s, func(account string) (CreatedConnector, write, error) {
		if err := s.needPublic(); err != nil {
			return CreatedConnector{}, write{}, err
		}
		con, secret, err := s.store.CreateConnector(ctx, account, c.Name)
		if err != nil {
			return CreatedConnector{}, write{}, err
		}
		token, err := s.endpoint().Token(con.ID, secret)
		return CreatedConnector{ID: con.ID, Name: con.Name, TunnelToken: token},
			write{"connector.create", con.ID, con.Name, nil}, err
	})
}

// needPublic checks that the public address of the gateway is known.
func (s *Service) needPublic() error {
	_, err := s.endpoint().Token("", "")
	return err
}

// Connectors lists the connectors of the account, oldest first.
func (s *Service) Connectors(ctx context.Context) ([]Connector, error) {
	if s.owner(ctx) != "" { // pages of members show none
		return []Connector{}, nil
	}
	live, archives := s.sessions(), sync.OnceValue(s.folder.Archives)
	return list(ctx, s, s.store.Connectors, func(c store.Connector) Connector {
		info, online := live[c.ID]
		return s.connectorOf(c, info, online, archives)
	})
}

// ConnectorDetail is a connector with the models that its model servers list, and the deployments
// that use it.
type ConnectorDetail struct {
	Connector
	Models      []UpstreamModels `json:"models"`
	Deployments []string         `json:"deployments"`
	// Hours are those of the last day in which this gateway has sent it a request.
	Hours []activity.ConnectorHour `json:"hours"`
}

// Connector returns a connector by id or name. It sends no request to a model server.
func (s *Service) Connector(ctx context.Context, idOrName string) (ConnectorDetail, error) {
	account, err := s.account(ctx)
	if err != nil {
		return ConnectorDetail{}, err
	}
	c, err := s.connector(account, idOrName)
	if err != nil {
		return ConnectorDetail{}, err
	}
	info, online := s.sessions()[c.ID]
	v := ConnectorDetail{
		Connector: s.connectorOf(c, info, online, s.folder.Archives), Models: []UpstreamModels{}, Deployments: []string{},
		Hours: []activity.ConnectorHour{},
	}
	hours, err := s.activity.Connector(ctx, account, c.ID, CallerFrom(ctx).User)
	if err != nil {
		s.log.Warn("failed to count the requests of a connector", "connector_id", c.ID, "error", err)
	}
	v.Hours = append(v.Hours, hours...)
	for _, u := range info.States {
		v.Models = append(v.Models, UpstreamModels{
			Upstream: u.Name, Models: append([]string{}, u.Models...),
			Error: unknownModels(c.Name, u),
		})
	}
	for _, d := range s.store.Deployments(account) {
		if slices.Contains(d.Connectors, c.ID) {
			v.Deployments = append(v.Deployments, d.Name)
		}
	}
	return v, nil
}

// RenameConnector is a new name for a connector.
type RenameConnector struct {
	Connector string `json:"-" path:"record"`
	Name      string `json:"name" need:"required" help:"The new name"`
}

// RenameConnector renames a connector. Its tunnel stays.
func (s *Service) RenameConnector(ctx context.Context, r RenameConnector) (Connector, error) {
	return change(ctx, s, func(account string) (Connector, write, error) {
		before, err := s.connector(account, r.Connector)
		if err != nil {
			return Connector{}, write{}, err
		}
		c, err := s.store.RenameConnector(ctx, account, before.ID, r.Name)
		info, online := s.sessions()[c.ID]
		return s.connectorOf(c, info, online, s.folder.Archives),
			write{"connector.rename", c.ID, c.Name, changed(values{"name": before.Name}, values{"name": c.Name})}, err
	})
}

// RemoveConnector removes a connector by id or name. Its token is then invalid, and
// the tunnel hub closes its tunnel. The removal is refused while deployments use the
// connector.
func (s *Service) RemoveConnector(ctx context.Context, idOrName string) (Connector, error) {
	return change(ctx, s, func(account string) (Connector, write, error) {
		c, err := s.store.RemoveConnector(ctx, account, idOrName)
		return s.connectorOf(c, tunnel.Info{}, false, nil), write{"connector.remove", c.ID, c.Name, nil}, err
	})
}

// connector finds a connector of the account by id, then by name.
func (s *Service) connector(account, idOrName string) (store.Connector, error) {
	if c, ok := s.store.FindConnector(account, idOrName); ok {
		return c, nil
	}
	return store.Connector{}, faultf(store.ErrNotFound,
		"connector %q not found in account %q; `caddy gateway connector list` shows all", idOrName, account)
}

func (s *Service) connectorOf(
	c store.Connector, info tunnel.Info, online bool, archives func() []downloads.Archive,
) Connector {
	v := Connector{Connector: c, State: Offline}
	if s.cluster != nil {
		v.Edge = s.cluster.Name()
	}
	if !online {
		return v
	}
	since := info.Since
	v.State, v.Since, v.LastSeenAt, v.LastTunnel = Online, &since, nil, nil
	v.Transport, v.Remote, v.Version, v.OS = info.Transport, info.Remote, info.Version, info.OS
	if downloads.Newer(s.build.Version, info.Version) {
		_, site := s.Downloads()
		v.NewerVersion, v.Update = s.build.Version, downloads.UpdateLine(site, archives(), info.OS)
	}
	v.Active, v.MaxRequests, v.NotAt = info.Active, info.Limit, info.NotAt
	for _, u := range info.States {
		upstream := upstreamOf(u)
		if u.OneModel {
			upstream.Loaded = s.loaded(c.Account, c.ID, u.Name)
		}
		v.Upstreams = append(v.Upstreams, upstream)
	}
	v.RTT = float64(info.RTT.Microseconds()) / 1000
	return v
}
