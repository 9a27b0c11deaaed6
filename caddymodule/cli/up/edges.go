package up

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// The number of edges that a run can have.
const (
	MinEdges = 2
	MaxEdges = 9
)

const (
	// edgeGrace is longer than an edge takes for running requests and for leaving the cluster.
	edgeGrace = 10 * time.Second
	etcdGrace = 5 * time.Second
)

// Edge is a running edge, for the user.
type Edge struct {
	Process
	Admin string `json:"admin"` // address of the admin endpoint
}

// edge is a gateway of a cluster in a process of its own.
type edge struct {
	child
	addresses
}

// startCluster starts etcd, the edges and a balancer in front of them. The account is that
// of the store, through the first edge.
func (u *Run) startCluster(ctx context.Context) (account, error) {
	program, err := findEtcd(ctx, u.Etcd)
	if err != nil {
		return account{}, err
	}
	dir := filepath.Join(filepath.Dir(database()), "edges")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return account{}, fmt.Errorf("creating the directory of the edges: %w", err)
	}
	etcd, err := u.startEtcd(ctx, program, dir)
	if err != nil {
		return account{}, err
	}
	edges, err := u.prepareEdges(dir, etcd)
	if err != nil {
		return account{}, err
	}
	if err := u.startEdges(ctx, edges); err != nil {
		return account{}, err
	}
	if err := u.load("the balancer", u.addresses.balancer(edges)); err != nil {
		return account{}, err
	}
	return account{remote{u.Call, edges[0].admin, edges[0].url(), u.addresses.url()}, filepath.Join(dir, "up.key")}, nil
}

// prepareEdges chooses the addresses of the edges, and writes their configurations.
func (u *Run) prepareEdges(dir, etcd string) ([]*edge, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	var edges []*edge
	last := u.addresses
	for i := range u.Edges {
		name := fmt.Sprintf("edge-%d", i+1)
		own := filepath.Join(dir, name)
		if err := os.MkdirAll(own, 0o700); err != nil {
			return nil, fmt.Errorf("creating the directory of %s: %w", name, err)
		}
		at := u.addresses // the first has the admin endpoint that commands use by default
		if i > 0 {
			if at, err = edgeAddresses(own, u.Host.Port+i); err != nil {
				return nil, err
			}
		}
		if err := at.chooseAfter(last); err != nil {
			return nil, err
		}
		last = at
		config := filepath.Join(own, "Caddyfile")
		if err := os.WriteFile(config, []byte(at.caddyfile(u.addresses.tunnel, inEtcd(etcd, name, at.tunnel))), 0o600); err != nil {
			return nil, fmt.Errorf("writing the configuration of %s: %w", name, err)
		}
		edges = append(edges, &edge{addresses: at, child: child{
			Process:     Process{Name: name, URL: at.url(), Log: filepath.Join(dir, name+".log")},
			environment: []string{"XDG_DATA_HOME=" + own},
			argv:        []string{program, "run", "--config", config}, grace: edgeGrace,
		}})
	}
	return edges, nil
}

// inEtcd returns the options of a store that edges share.
func inEtcd(endpoint, name, advertise string) string {
	return fmt.Sprintf(`storage etcd {
			endpoints %s
		}
		edge {
			name %s
			advertise %s
		}`, endpoint, name, advertise)
}

// edgeAddresses chooses the addresses of an edge, except that of its HTTP API.
func edgeAddresses(dir string, udpPort int) (a addresses, err error) {
	if a.tunnel, err = chooseUDP(udpPort); err != nil {
		return a, err
	}
	if socket := asSocket(filepath.Join(dir, "admin.sock")); socket != "" {
		a.admin = "unix/" + socket
		return a, nil
	}
	a.admin, err = chooseTCP(0)
	return a, err
}

// chooseAfter sets the address of the HTTP API to the next port that is free after another.
func (a *addresses) chooseAfter(other addresses) error {
	const tries = 100
	for port := other.port + 1; port <= other.port+tries; port++ {
		http, err := chooseHTTP(net.JoinHostPort(other.name, strconv.Itoa(port)))
		if errors.Is(err, errPortTaken) {
			continue
		}
		a.name, a.hosts, a.port = http.name, http.hosts, http.port
		return err
	}
	return fmt.Errorf("none of the %d ports after %d is free for an edge; choose another one with --listen", tries, other.port)
}

// startEdges starts all edges and waits until they are ready.
func (u *Run) startEdges(ctx context.Context, edges []*edge) error {
	var children []*child
	u.stops = append(u.stops, func() { stopAll(children) })
	for _, e := range edges {
		if err := u.start(&e.child); err != nil {
			return err
		}
		children = append(children, &e.child)
		u.ready.Edges = append(u.ready.Edges, Edge{e.Process, e.admin})
		if e.admin != u.addresses.admin && Exposed(e.admin) {
			u.ready.exposed(e.admin)
		}
	}
	for _, e := range edges {
		if err := e.await(ctx, func() bool { return answersOK(ctx, e.url()+readyPath) }); err != nil {
			return err
		}
	}
	return nil
}

// stopAll stops processes at once, and returns when they have ended.
func stopAll(children []*child) {
	for _, c := range children {
		c.stop()
	}
	for _, c := range children {
		<-c.done
	}
}

// readyPath is where an edge reports whether balancers may use it.
const readyPath = "/.well-known/postern/ready"

// balancer returns the configuration of a balancer in front of edges. A request whose edge
// refuses the connection goes to another one; a request that an edge has is not sent again.
func (a addresses) balancer(edges []*edge) string {
	var upstreams []string
	for _, e := range edges {
		upstreams = append(upstreams, strings.TrimPrefix(e.url(), "http://"))
	}
	return fmt.Sprintf(`{
	admin off
	persist_config off
	grace_period 2s
	servers {
		protocols h1
	}
	log {
		level WARN
		exclude admin
	}
}

%s
	reverse_proxy %s {
		lb_policy round_robin
		lb_try_duration 5s
		health_uri %s
		health_interval 1s
		health_timeout 2s
	}
}
`, a.site(), strings.Join(upstreams, " "), readyPath)
}
