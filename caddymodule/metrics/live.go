package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/tunnel"
)

// live collects what is read at each scrape: tunnels, deployment states, queues
// and the memory budget. Parts that have not started yet are left out.
type live struct {
	*gateway.Gateway
	keys bool // key_metrics
}

var (
	tunnelConnections = describe("tunnel_connections",
		"Live tunnels, by connector id and transport.", "connector", "transport")
	tunnelRTT           = describe("tunnel_rtt_seconds", "Round-trip time of a live tunnel.", "connector", "transport")
	tunnelRequests      = describe("tunnel_requests", "Running requests of a live tunnel.", "connector", "transport")
	tunnelRequestsLimit = describe("tunnel_requests_limit",
		"Maximum number of running requests of a live tunnel: the connector's max_requests.", "connector", "transport")
	upstreamUp = describe("upstream_up",
		"Whether a model server is reachable according to its connector. Absent until the connector reports it.",
		"connector", "upstream")
	deploymentState = describe("deployment_state",
		"1 for the current state of a deployment: available, cuts_prompts, slow, degraded, hanging, model_missing, "+
			"model_server_down, upstream_missing or offline. Deployments of the same name in several accounts are summed.",
		"deployment", "state")
	queueLength = describe("queue_length", "Queued requests, by deployment.", "deployment")
	placesUsed  = describe("places_used", "Requests that run in a place of a model server, by deployment.", "deployment")
	modelSwaps  = describe("model_swaps_total",
		"Models that a model server which loads one at a time has loaded.", "connector", "upstream")
	modelSwapSeconds = describe("model_swap_seconds_total",
		"Time from the first request for such a model to the start of an answer.", "connector", "upstream")
	storeReachable = describe("store_reachable",
		"Whether the store is open and current and, in a cluster, whether this edge has contact with it.")
	storeContact = describe("store_contact_age_seconds",
		"Time since this edge of a cluster last had contact with the store, 0 while it has contact.")
	edgeLeader = describe("edge_leader", "Whether this edge has the duties that one edge of the cluster fulfills for all.")
	edgeStates = describe("edges",
		"Edges of the cluster, by state: serving, draining, without_store, lost or unknown.", "state")
	memoryHeld    = describe("memory_held_bytes", "Bytes of the memory budget currently held by requests and answers.")
	memoryLimit   = describe("memory_limit_bytes", "The memory budget of requests and answers, max_memory.")
	memoryRefused = describe("memory_refused_total",
		"Requests and answers rejected by the memory budget, by reason: the budget is full (full), or a key or account has "+
			"used its share (share).", "reason")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("postern_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector. It announces nothing, as the metrics
// depend on what has started.
func (live) Describe(chan<- *prometheus.Desc) {}

// emit sends a metric to Prometheus.
type emit func(d *prometheus.Desc, value float64, labels ...string)

func emitAs(ch chan<- prometheus.Metric, kind prometheus.ValueType) emit {
	return func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
}

// Collect implements prometheus.Collector.
func (l live) Collect(ch chan<- prometheus.Metric) {
	gauge, counter := emitAs(ch, prometheus.GaugeValue), emitAs(ch, prometheus.CounterValue)
	if hub, err := l.Listener.Hub(); err == nil {
		collectTunnels(hub.Sessions(), gauge)
	}
	if service, err := l.Manage(); err == nil {
		states := make(map[[2]string]int)
		service.EachDeployment(func(d manage.Deployment) { states[[...]string{d.Name, string(d.State)}]++ })
		for labels, n := range states {
			gauge(deploymentState, float64(n), labels[:]...)
		}
	}
	open := l.Store.Opened()
	gauge(storeReachable, zeroOrOne[open != nil && open.Store.Serving() == nil && open.Store.InContact()])
	if open == nil {
		return
	}
	if open.Cluster != nil {
		l.collectEdges(open.Cluster, gauge)
	}
	collectTurns(open, gauge, counter)
	if l.keys {
		collectQuotas(open, gauge)
	}
	s := open.Memory.Stats()
	gauge(memoryHeld, float64(s.Reserved))
	gauge(memoryLimit, float64(s.Total))
	counter(memoryRefused, float64(s.Full), "full")
	counter(memoryRefused, float64(s.OverShare), "share")
}

// collectTurns collects the metrics of places at model servers.
func collectTurns(open *gateway.Services, gauge, counter emit) {
	lengths := map[string][2]int{} // accounts' deployments of the same name are one series
	open.Turns.Lengths(func(_, deployment string, running, waiting int) {
		n := lengths[deployment]
		lengths[deployment] = [...]int{n[0] + running, n[1] + waiting}
	})
	for deployment, n := range lengths {
		gauge(placesUsed, float64(n[0]), deployment)
		gauge(queueLength, float64(n[1]), deployment)
	}
	for _, account := range open.Store.Accounts() {
		for _, s := range open.Turns.Servers(account.ID) {
			counter(modelSwaps, float64(s.Swaps), s.Connector, s.Server)
			counter(modelSwapSeconds, s.Swapping.Seconds(), s.Connector, s.Server)
		}
	}
}

// zeroOrOne contains the values of gauges that are 1 or 0.
var zeroOrOne = map[bool]float64{true: 1}

// collectEdges collects the metrics of a cluster.
func (l live) collectEdges(edge gateway.Cluster, gauge emit) {
	service, err := l.Manage()
	if err != nil {
		return
	}
	age := 0.0
	if last := edge.Contact(edge.Name()).Last; !last.IsZero() {
		age = time.Since(last).Seconds()
	}
	gauge(storeContact, age)
	gauge(edgeLeader, zeroOrOne[edge.Leader()])
	states := map[string]int{}
	for _, e := range service.AllEdges(false) {
		states[e.State]++
	}
	for _, state := range manage.EdgeStates {
		gauge(edgeStates, float64(states[state]), state)
	}
}

func collectTunnels(sessions []tunnel.Info, gauge emit) {
	for _, s := range sessions {
		gauge(tunnelConnections, 1, s.Connector, s.Transport)
		gauge(tunnelRTT, s.RTT.Seconds(), s.Connector, s.Transport)
		gauge(tunnelRequests, float64(s.Active), s.Connector, s.Transport)
		gauge(tunnelRequestsLimit, float64(s.Limit), s.Connector, s.Transport)
		for _, u := range s.States {
			if u.Known {
				gauge(upstreamUp, zeroOrOne[u.Reachable], s.Connector, u.Name)
			}
		}
	}
}
