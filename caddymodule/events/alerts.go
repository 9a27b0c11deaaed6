package events

import "cmp"

// Alert is what an event means to people.
type Alert int

const (
	NoAlert     Alert = iota
	AlertBegins       // something needs attention
	AlertEnds         // it no longer does
)

// alerts are the causes that people have been alerted to and that events end. All gateways of a cluster keep them. Of
// model servers that are down, the sources emit only one event until they are up.
type alerts struct {
	offline map[string]bool          // connectors, by id
	models  map[cause]map[model]bool // the models that a cause affects
}

// cause is why a model has an alert. If a server hangs, all of its models have the same.
type cause struct{ event, connector, about string }

type model struct{ account, deployment string }

// alertOf returns what an event means to people. Another event about a known cause means nothing to them.
func (s *sources) alertOf(e Event) Alert {
	text := func(name string) string {
		value, _ := e.Data[name].(string)
		return value
	}
	a, connector, m := &s.alerts, text("connector_id"), model{text("account"), text("deployment")}
	switch e.Name {
	case eventPairingRequested, eventPairingLimited, eventKeyExpiring, eventKeyExpired, eventKeyLimit, eventGroupLimit,
		eventAccountLimit, eventUpstreamDown:
		return AlertBegins
	case eventPairingApproved, eventUpstreamUp:
		return AlertEnds
	case eventConnectorOffline:
		if _, ok := s.store.Connector(connector); ok { // otherwise it was removed
			a.offline[connector] = true
			return AlertBegins
		}
	case eventConnectorOnline:
		if a.offline[connector] {
			delete(a.offline, connector)
			return AlertEnds
		}
	case eventModelHanging, eventModelCutsPrompts, eventModelSlow:
		c := s.causeOf(e.Name, connector, m)
		known := len(a.models[c]) > 0
		a.end(m, connector)
		if a.models[c] == nil {
			a.models[c] = make(map[model]bool)
		}
		if a.models[c][m] = true; !known {
			return AlertBegins
		}
	case eventModelAnswering:
		if a.end(m, connector) {
			return AlertEnds
		}
	case eventDeploymentChanged, eventDeploymentRemoved:
		a.end(m, "")
	}
	return NoAlert
}

// causeOf returns the cause of an event about a model at a connector.
func (s *sources) causeOf(event, connector string, m model) cause {
	d, _ := s.store.Deployment(m.account, m.deployment)
	server, name := d.Upstream, "\x00"+cmp.Or(d.Model, m.deployment)
	if p := s.presences[connector]; p != nil && server == "" {
		for hub := range p.hubs {
			if states := s.states(hub, connector); len(states) == 1 {
				server = states[0].Name
			}
		}
	}
	if event == eventModelHanging && server != "" {
		name = ""
	}
	return cause{event, connector, server + name}
}

// end removes a model from the causes at a connector; "" means at all of them. It reports whether one of the causes
// affects no other model.
func (a *alerts) end(m model, connector string) (ended bool) {
	for c, models := range a.models {
		if !models[m] || connector != "" && c.connector != connector {
			continue
		}
		if delete(models, m); len(models) == 0 {
			delete(a.models, c)
			ended = true
		}
	}
	return ended
}

// forget removes the causes at a connector that is removed.
func (a *alerts) forget(connector string) {
	delete(a.offline, connector)
	for c := range a.models {
		if c.connector == connector {
			delete(a.models, c)
		}
	}
}
