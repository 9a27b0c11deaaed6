package tests

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

type composeFile struct {
	Services map[string]struct {
		Image       string
		Command     []string
		Build       map[string]any
		Environment map[string]string
		Labels      map[string]string
		Ports       []string
		Volumes     []string
		ReadOnly    bool     `yaml:"read_only"`
		CapDrop     []string `yaml:"cap_drop"`
		Healthcheck struct{ Test []string }
	}
	Volumes map[string]any
}

// publishes checks that a container publishes what its Caddyfile listens on.
func (c composeFile) publishes(t *testing.T, name, service string, want []string) {
	t.Helper()
	for _, listener := range want {
		port, protocol, _ := strings.Cut(listener, "/")
		published := port + ":" + port
		if protocol == "udp" {
			published += "/udp"
		}
		if !slices.Contains(c.Services[service].Ports, published) {
			t.Errorf("%s: %s does not publish %s", name, service, published)
		}
	}
}

// The compose file of a cluster has the edges that its balancer uses, with their addresses.
func TestComposeCluster(t *testing.T) {
	t.Parallel()
	const name, folder = "docs/compose/cluster.yaml", "docs/compose/cluster"
	file := readYAML[composeFile](t, name)[0]
	file.confined(t, name)
	balancer := read(t, filepath.Join(harness.Root(t), folder, "balancer/Caddyfile"))
	checkCaddyfile(t, folder+"/balancer/Caddyfile", string(balancer))
	edge := read(t, filepath.Join(harness.Root(t), folder, "edge/Caddyfile"))
	checkCaddyfile(t, folder+"/edge/Caddyfile", string(edge))
	if want := []string{"80:80", "443:443", "443:443/udp"}; !slices.Equal(file.Services["balancer"].Ports, want) ||
		!slices.Contains(file.Services["balancer"].Volumes, "./cluster/balancer:/etc/postern:ro") {
		t.Errorf("%s: the balancer is %+v", name, file.Services["balancer"])
	}
	_, upstreams, _ := strings.Cut(string(balancer), "reverse_proxy ")
	upstreams, _, _ = strings.Cut(upstreams, " {")
	udp := map[string]bool{}
	for upstream := range strings.FieldsSeq(upstreams) {
		service := strings.TrimSuffix(upstream, ":443")
		e := file.Services[service]
		port := e.Environment["POSTERN_UDP"]
		if udp[port] || e.Environment["POSTERN_EDGE"] != service || e.Environment["POSTERN_SITE"] == "" ||
			!strings.HasPrefix(e.Image, gatewayImage) ||
			!slices.Equal(e.Ports, []string{port + ":" + port + "/udp"}) ||
			!slices.Equal(e.Volumes, []string{"./cluster/edge:/etc/postern:ro", service + ":/data"}) {
			t.Errorf("%s: %s is %+v", name, service, e)
		}
		udp[port] = true
	}
	if len(udp) != 3 || !udp["7443"] {
		t.Errorf("%s: the edges have the ports %v", name, udp)
	}
	if etcd := file.Services["etcd"]; len(etcd.Ports) > 0 ||
		!slices.Contains(etcd.Command, "--advertise-client-urls=http://etcd:2379") ||
		!strings.Contains(string(edge), "endpoints http://etcd:2379\n") {
		t.Errorf("%s: etcd is %+v", name, etcd)
	}
}

// secret matches names of environment variables that would contain a secret.
var secret = regexp.MustCompile(`(TOKEN|SECRET|PASSWORD|KEY)$`)

// The compose file has the images, ports, paths and commands that the programs have.
func TestCompose(t *testing.T) {
	t.Parallel()
	const name = "docs/compose/compose.yaml"
	file := readYAML[composeFile](t, name)[0]
	file.publishes(t, name, "gateway", listeners(t, "docs/compose/gateway/Caddyfile"))
	gateway, connector := file.Services["gateway"], file.Services["connector"]
	if !strings.HasPrefix(gateway.Image, gatewayImage) || !strings.HasPrefix(connector.Image, connectorImage) ||
		file.Services["ollama"].Image == "" {
		t.Errorf("%s: wrong images: %s and %s", name, gateway.Image, connector.Image)
	}
	if !slices.Contains(gateway.Volumes, "./gateway:/etc/postern:ro") ||
		!slices.Contains(gateway.Volumes, "gateway:/data") {
		t.Errorf("%s: the gateway mounts %v", name, gateway.Volumes)
	}
	if !slices.Contains(connector.Volumes, "connector:/config") {
		t.Errorf("%s: the connector mounts %v", name, connector.Volumes)
	}
	file.confined(t, name)
}

// confined checks the secrets, volumes and health checks of all services.
func (c composeFile) confined(t *testing.T, name string) {
	t.Helper()
	for service, s := range c.Services {
		for key := range s.Environment {
			if secret.MatchString(key) {
				t.Errorf("%s: %s has a secret in %s", name, service, key)
			}
		}
		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if _, ok := c.Volumes[source]; !ok && !strings.HasPrefix(source, "./") {
				t.Errorf("%s: %s has an unknown volume %s", name, service, source)
			}
		}
		check := s.Healthcheck.Test
		if len(check) < 2 || check[0] != "CMD" {
			t.Errorf("%s: %s has no health check", name, service)
		} else if strings.Contains(s.Image, "/postern-dev/") {
			checkCommand(t, name, check[1], check[2:]...)
			if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) {
				t.Errorf("%s: %s is not confined", name, service)
			}
		}
	}
}

// labelBlock is a directive that labels describe, with its block.
type labelBlock struct {
	arguments string
	block     map[string]*labelBlock
}

// caddyfileOf writes the Caddyfile that caddy-docker-proxy generates from labels, by the
// rules of its README: dots nest directives, values are arguments, `caddy_N` are separate
// sites in order, a site without an address has the global options, and directives are
// sorted by name.
func caddyfileOf(labels map[string]string) string {
	root := &labelBlock{}
	for label, value := range labels {
		at := root
		for name := range strings.SplitSeq(label, ".") {
			if at.block == nil {
				at.block = map[string]*labelBlock{}
			}
			if at.block[name] == nil {
				at.block[name] = &labelBlock{}
			}
			at = at.block[name]
		}
		at.arguments = value
	}
	var sites []string
	for _, name := range slices.Sorted(maps.Keys(root.block)) {
		var out strings.Builder
		root.block[name].write(&out, "", "")
		sites = append(sites, out.String())
	}
	return strings.Join(sites, "\n")
}

func (b *labelBlock) write(out *strings.Builder, indent, name string) {
	head := strings.TrimSpace(name + " " + b.arguments)
	if b.block == nil {
		out.WriteString(indent + head + "\n")
		return
	}
	out.WriteString(indent + strings.TrimSpace(head+" {") + "\n")
	for _, name := range slices.Sorted(maps.Keys(b.block)) {
		b.block[name].write(out, indent+"\t", name)
	}
	out.WriteString(indent + "}\n")
}

// The labels for caddy-docker-proxy generate the Caddyfile that the page shows, and the
// image is built with the module of this repository.
func TestDockerProxy(t *testing.T) {
	t.Parallel()
	const name = "docs/compose/docker-proxy.yaml"
	file := readYAML[composeFile](t, name)[0]
	generated := caddyfileOf(file.Services["caddy"].Labels)
	page := read(t, filepath.Join(harness.Root(t), "docs/compose/README.md"))
	if !strings.Contains(string(page), "```caddyfile\n"+generated+"```") {
		t.Errorf("the page does not show what the labels generate:\n%s", generated)
	}
	checkCaddyfile(t, name, generated)
	file.publishes(t, name, "caddy", listeners(t, "docs/compose/gateway/Caddyfile"))
	docker := read(t, filepath.Join(harness.Root(t), "docs/compose/Dockerfile"))
	for _, want := range []string{
		"FROM caddy:2-builder AS builder\n",
		" --with " + module + " ${WITH}\n", "--from=builder /usr/bin/caddy /usr/bin/caddy\n",
	} {
		if !strings.Contains(string(docker), want) {
			t.Errorf("the Dockerfile has no %q", want)
		}
	}
}
