package tests

import (
	"bytes"
	"encoding/json"
	"maps"
	"net"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/postern-dev/postern/tests/harness"
)

const (
	gatewayImage   = "ghcr.io/postern-dev/postern:"
	connectorImage = "ghcr.io/postern-dev/connector:"
	imageUser      = 65532
)

// readYAML decodes the documents of a file of the repository.
func readYAML[T any](t *testing.T, name string) []T {
	t.Helper()
	data := read(t, filepath.Join(harness.Root(t), name))
	var documents []T
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document T
		if err := decoder.Decode(&document); err != nil {
			if err.Error() != "EOF" {
				t.Fatalf("%s: %v", name, err)
			}
			return documents
		}
		documents = append(documents, document)
	}
}

// listeners returns the ports that a Caddyfile of the repository listens on, like 443/tcp, including the ports
// of automatic HTTPS, HTTP/3 and tunnels.
func listeners(t *testing.T, name string) []string {
	t.Helper()
	text := read(t, filepath.Join(harness.Root(t), name))
	var config struct {
		Apps struct {
			HTTP struct {
				Servers map[string]struct{ Listen []string }
			}
			Gateway struct{ Listen string } `json:"model_gateway"`
		}
	}
	must(t, json.Unmarshal(checkCaddyfile(t, name, string(text)), &config))
	ports := map[string]bool{}
	for _, server := range config.Apps.HTTP.Servers {
		for _, address := range server.Listen {
			_, port, err := net.SplitHostPort(address)
			must(t, err)
			ports[port+"/tcp"] = true
			if port == "443" {
				ports["80/tcp"], ports["443/udp"] = true, true
			}
		}
	}
	tunnels := config.Apps.Gateway.Listen
	if tunnels == "" {
		tunnels = ":7443"
	}
	_, port, _ := strings.Cut(tunnels, ":")
	ports[port+"/udp"] = true
	return slices.Sorted(maps.Keys(ports))
}

// checkCommand runs one of the programs with arguments and --help, which fails for
// commands and flags that do not exist.
func checkCommand(t *testing.T, where, program string, args ...string) {
	t.Helper()
	if program == "postern" { // its name in packages and images
		program = "caddy"
	}
	command := exec.Command(filepath.Join(harness.Root(t), "bin", program), append(args, "--help")...)
	if out, err := command.CombinedOutput(); err != nil || program != "caddy" && program != "connector" {
		t.Errorf("%s: %s %v: %v\n%s", where, program, args, err, out)
	}
}

// manifest has the fields of Kubernetes objects and kustomizations that are checked.
type manifest struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Namespace string   // of a kustomization
	Resources []string // of a kustomization
	Patches   []struct{ Path string }
	Generated []struct {
		Name, Behavior string
		Files          []string
	} `yaml:"configMapGenerator"`
	Spec struct {
		Replicas       int
		Type           string
		ServiceName    string `yaml:"serviceName"`
		MaxUnavailable int    `yaml:"maxUnavailable"`
		ClusterIP      string `yaml:"clusterIP"`
		NotReady       bool   `yaml:"publishNotReadyAddresses"`
		Selector       map[string]any
		Ports          []struct {
			Port       int
			Protocol   string
			TargetPort string `yaml:"targetPort"`
		}
		Claims   []manifest `yaml:"volumeClaimTemplates"`
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Grace    int `yaml:"terminationGracePeriodSeconds"`
				Security struct {
					NonRoot bool `yaml:"runAsNonRoot"`
					User    int  `yaml:"runAsUser"`
					Group   int  `yaml:"fsGroup"`
				} `yaml:"securityContext"`
				Containers []container
				Volumes    []struct {
					Name      string
					ConfigMap struct{ Name string } `yaml:"configMap"`
				}
			}
		}
	}
}

type container struct {
	Name, Image string
	Args        []string
	Env         []struct{ Name, Value string }
	Ports       []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
		HostPort      int `yaml:"hostPort"`
		Protocol      string
	}
	Startup   probe `yaml:"startupProbe"`
	Readiness probe `yaml:"readinessProbe"`
	Liveness  probe `yaml:"livenessProbe"`
	Security  struct {
		Escalation bool `yaml:"allowPrivilegeEscalation"`
		ReadOnly   bool `yaml:"readOnlyRootFilesystem"`
	} `yaml:"securityContext"`
	Mounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	Get struct{ Path, Port string } `yaml:"httpGet"`
}

// manifests returns the objects of a kustomization by kind, and by kind and name, and the
// kustomization.
func manifests(t *testing.T, folder string) map[string]manifest {
	t.Helper()
	kustomization, resources := kustomize(t, folder)
	objects := map[string]manifest{kustomization.Kind: kustomization}
	for _, resource := range resources {
		text, err := yaml.Marshal(resource)
		must(t, err)
		var object manifest
		if err := yaml.Unmarshal(text, &object); err != nil {
			t.Fatalf("%s: %v", folder, err)
		}
		objects[object.Kind+" "+object.Metadata.Name] = object
		if _, ok := objects[object.Kind]; !ok {
			objects[object.Kind] = object
		}
	}
	return objects
}

// checkPod checks what both pods have in common, and returns their only container and the
// paths of its mounts by volume.
func checkPod(t *testing.T, folder string, m manifest, replicas int, image string) (container, map[string]string) {
	t.Helper()
	pod := m.Spec.Template.Spec
	if len(pod.Containers) != 1 || m.Spec.Replicas != replicas {
		t.Fatalf("%s: %d containers, %d replicas", folder, len(pod.Containers), m.Spec.Replicas)
	}
	c := pod.Containers[0]
	if !strings.HasPrefix(c.Image, image) {
		t.Errorf("%s: image %s", folder, c.Image)
	}
	if s := pod.Security; !s.NonRoot || s.User != imageUser || s.Group != imageUser || c.Security.Escalation ||
		!c.Security.ReadOnly {
		t.Errorf("%s: the pod is not confined: %+v %+v", folder, s, c.Security)
	}
	volumes := map[string]bool{}
	for _, volume := range pod.Volumes {
		volumes[volume.Name] = true
	}
	for _, claim := range m.Spec.Claims {
		volumes[claim.Metadata.Name] = true
	}
	mounts := map[string]string{}
	for _, mount := range c.Mounts {
		if !volumes[mount.Name] {
			t.Errorf("%s: no volume %s", folder, mount.Name)
		}
		mounts[mount.Name] = mount.MountPath
	}
	for _, env := range c.Env {
		if secret.MatchString(env.Name) {
			t.Errorf("%s: a secret in %s", folder, env.Name)
		}
	}
	if c.Readiness.Get.Path != "/readyz" || c.Liveness.Get.Path != "/healthz" {
		t.Errorf("%s: probes %+v %+v", folder, c.Readiness, c.Liveness)
	}
	return c, mounts
}

// The manifests of the gateway fit its Caddyfile, and each other.
func TestKubernetesGateway(t *testing.T) {
	t.Parallel()
	const folder = "docs/kubernetes/base"
	objects := manifests(t, folder)
	c, mounts := checkPod(t, folder, objects["StatefulSet"], 1, gatewayImage)
	ports, named := map[string]bool{"443/udp": true}, map[string]string{} // HTTP/3 is not published
	for _, port := range c.Ports {
		protocol := strings.ToLower(port.Protocol)
		if protocol == "" {
			protocol = "tcp"
		}
		named[port.Name] = strconv.Itoa(port.ContainerPort) + "/" + protocol
		ports[named[port.Name]] = true
	}
	for _, listener := range listeners(t, folder+"/Caddyfile") {
		if !ports[listener] {
			t.Errorf("the container has no port %s", listener)
		}
	}
	for _, p := range []probe{c.Startup, c.Readiness, c.Liveness} {
		if named[p.Get.Port] != "8080/tcp" {
			t.Errorf("a probe asks port %s", p.Get.Port)
		}
	}
	var published []string
	for _, port := range objects["Service"].Spec.Ports {
		published = append(published, strconv.Itoa(port.Port)+" "+named[port.TargetPort])
	}
	if want := []string{"443 443/tcp", "7443 7443/udp"}; !slices.Equal(published, want) {
		t.Errorf("the service publishes %v, want %v", published, want)
	}
	if mounts["caddyfile"] != "/etc/postern" || mounts["data"] != "/data" || mounts["config"] != "/config" {
		t.Errorf("mounts: %v", mounts)
	}
	kustomization := objects["Kustomization"]
	generated := kustomization.Generated
	if len(generated) != 1 || !slices.Equal(generated[0].Files, []string{"Caddyfile"}) ||
		generated[0].Name != objects["StatefulSet"].Spec.Template.Spec.Volumes[0].ConfigMap.Name {
		t.Errorf("the Caddyfile of the pod is not that of the folder: %+v", generated)
	}
	if kustomization.Namespace != objects["Namespace"].Metadata.Name {
		t.Errorf("the objects are in %s", kustomization.Namespace)
	}
}

// The manifest of the connector fits its flags.
func TestKubernetesConnector(t *testing.T) {
	t.Parallel()
	const folder = "docs/kubernetes/connector"
	c, mounts := checkPod(t, folder, manifests(t, folder)["Deployment"], 1, connectorImage)
	checkCommand(t, folder, "connector", c.Args...)
	at := slices.Index(c.Args, "--metrics-listen")
	if at < 0 || len(c.Ports) != 1 || c.Args[at+1] != "0.0.0.0:"+strconv.Itoa(c.Ports[0].ContainerPort) ||
		c.Readiness.Get.Port != c.Ports[0].Name || c.Liveness.Get.Port != c.Ports[0].Name {
		t.Errorf("the probes do not ask the port of %v", c.Args)
	}
	for _, env := range c.Env {
		if env.Name == "TUNNEL_TOKEN_FILE" && path.Dir(env.Value) != mounts["token"] {
			t.Errorf("the token is in %s, mounted is %s", env.Value, mounts["token"])
		}
	}
}

// The documents and the deployment files name one version, so that a release changes it
// in known places.
func TestImageVersions(t *testing.T) {
	t.Parallel()
	root := harness.Root(t)
	number := regexp.MustCompile(`(?:ghcr\.io/postern-dev/\w+:|(?:postern|connector)_|` +
		`(?:download/|tags/|/(?:postern|connector)@)v)([0-9.]*[0-9])`)
	versions := map[string][]string{}
	for _, name := range []string{
		"SECURITY.md", "docs/install.md", "docs/compose/compose.yaml", "docs/compose/cluster.yaml",
		"docs/kubernetes/base/gateway.yaml", "docs/kubernetes/connector/connector.yaml",
	} {
		text := read(t, filepath.Join(root, name))
		found := number.FindAllSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("%s names no version", name)
		}
		for _, m := range found {
			versions[string(m[1])] = append(versions[string(m[1])], name)
		}
	}
	next := strings.TrimSpace(string(read(t, filepath.Join(root, "connector/version/VERSION"))))
	if delete(versions, next); len(versions) > 0 {
		t.Errorf("not the version %s: %v", next, versions)
	}
}
