package tests

import (
	"encoding/json"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
)

// kustomize returns a kustomization, and its objects with its patches.
func kustomize(t *testing.T, folder string) (manifest, []map[string]any) {
	t.Helper()
	kustomization := readYAML[manifest](t, path.Join(folder, "kustomization.yaml"))[0]
	var objects []map[string]any
	for _, resource := range kustomization.Resources {
		name := path.Join(folder, resource)
		if path.Ext(name) == ".yaml" {
			objects = append(objects, readYAML[map[string]any](t, name)...)
			continue
		}
		_, base := kustomize(t, name)
		objects = append(objects, base...)
	}
	identity := func(object map[string]any) [2]any {
		metadata, _ := object["metadata"].(map[string]any)
		return [2]any{object["kind"], metadata["name"]}
	}
	for _, file := range kustomization.Patches {
		for _, patch := range readYAML[map[string]any](t, path.Join(folder, file.Path)) {
			i := slices.IndexFunc(objects, func(object map[string]any) bool { return identity(object) == identity(patch) })
			if i < 0 {
				t.Fatalf("%s/%s: there is no %v to patch", folder, file.Path, identity(patch))
			}
			mergePatch(objects[i], patch)
		}
	}
	return kustomization, objects
}

// mergePatch applies a strategic merge patch: null removes a field, `$patch: delete` an item.
func mergePatch(to, patch map[string]any) {
	for name, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(to, name)
		case map[string]any:
			if _, ok := to[name].(map[string]any); !ok {
				to[name] = map[string]any{}
			}
			mergePatch(to[name].(map[string]any), value)
		case []any:
			list, _ := to[name].([]any)
			to[name] = mergeItems(list, value)
		default:
			to[name] = value
		}
	}
}

// mergeItems applies a patch to a list of objects, which it finds by the key that lists of
// their kind have.
func mergeItems(list, patch []any) []any {
	key := func(item any) any {
		object := item.(map[string]any)
		for _, name := range []string{"containerPort", "port", "mountPath", "name"} {
			if value, ok := object[name]; ok {
				return value
			}
		}
		return nil
	}
	for _, item := range patch {
		change := item.(map[string]any)
		i := slices.IndexFunc(list, func(other any) bool { return key(other) == key(item) })
		switch {
		case i >= 0 && change["$patch"] == "delete":
			list = slices.Delete(list, i, i+1)
		case i >= 0:
			mergePatch(list[i].(map[string]any), change)
		default:
			list = append(list, item)
		}
	}
	return list
}

var variable = regexp.MustCompile(`\{\$(\w+)\}`)

// The manifests of a cluster fit their Caddyfile, and each other.
func TestKubernetesCluster(t *testing.T) {
	t.Parallel()
	for folder, want := range map[string]struct {
		hostPort int
		service  []string // ports
		pods     string   // security level of the namespace
	}{
		"docs/kubernetes/cluster":           {7443, []string{"https", "tunnels"}, "privileged"},
		"docs/kubernetes/cluster-websocket": {0, []string{"https"}, "restricted"},
	} {
		objects := manifests(t, folder)
		set := objects["StatefulSet"]
		c, mounts := checkPod(t, folder, set, 3, gatewayImage)
		checkClusterCaddyfile(t, folder, set, c, mounts)
		generated := objects["Kustomization"].Generated
		if len(generated) != 1 || generated[0].Behavior != "replace" ||
			generated[0].Name != manifests(t, "docs/kubernetes/base")["Kustomization"].Generated[0].Name ||
			!slices.Equal(generated[0].Files, []string{"Caddyfile"}) {
			t.Errorf("%s: the Caddyfile of the pods is not that of the folder: %+v", folder, generated)
		}
		for _, port := range c.Ports {
			if host := port.HostPort; port.Name == "tunnels" && host != want.hostPort || port.Name != "tunnels" && host != 0 {
				t.Errorf("%s: port %s has the host's port %d", folder, port.Name, host)
			}
		}
		var published []string
		for _, port := range objects["Service postern"].Spec.Ports {
			published = append(published, port.TargetPort)
		}
		if !slices.Equal(published, want.service) {
			t.Errorf("%s: the service publishes %v", folder, published)
		}
		if level := objects["Namespace"].Metadata.Labels["pod-security.kubernetes.io/enforce"]; level != want.pods {
			t.Errorf("%s: the namespace allows %s pods", folder, level)
		}
		names := objects["Service "+set.Spec.ServiceName].Spec
		if names.ClusterIP != "None" || !names.NotReady {
			t.Errorf("%s: the pods have no names: %+v", folder, names)
		}
		labels := set.Spec.Template.Metadata.Labels
		budget := objects["PodDisruptionBudget"].Spec
		matched, _ := budget.Selector["matchLabels"].(map[string]any)
		if budget.MaxUnavailable != 1 || len(matched) == 0 {
			t.Errorf("%s: the budget is %+v", folder, budget)
		}
		for _, selector := range []map[string]any{matched, names.Selector} {
			for name, value := range selector {
				if labels[name] != value {
					t.Errorf("%s: %s=%v selects no pod", folder, name, value)
				}
			}
		}
		if ingress, ok := objects["Ingress"]; ok != (folder == "docs/kubernetes/cluster-websocket") ||
			ok && objects["Service postern"].Spec.Type != "ClusterIP" {
			t.Errorf("%s: ingress %v", folder, ingress.Metadata.Name)
		}
	}
}

// checkClusterCaddyfile checks what the Caddyfile needs of the pod.
func checkClusterCaddyfile(t *testing.T, folder string, set manifest, c container, mounts map[string]string) {
	t.Helper()
	name := folder + "/Caddyfile"
	text := read(t, filepath.Join(harness.Root(t), name))
	given := map[string]bool{}
	for _, env := range c.Env {
		given[env.Name] = true
	}
	used := map[string]bool{"CADDY_ADMIN": true}
	for _, m := range variable.FindAllSubmatch(text, -1) {
		used[string(m[1])] = true
	}
	if !maps.Equal(given, used) {
		t.Errorf("%s: the pod has the variables %v, the Caddyfile uses %v", folder, given, used)
	}
	if mounts["etcd"] != etcdSecrets || !strings.Contains(string(text), etcdSecrets) ||
		mounts["caddyfile"] != "/etc/postern" {
		t.Errorf("%s: mounts %v", folder, mounts)
	}
	if !strings.Contains(string(text), "advertise {$HOST_IP}:7443") &&
		!strings.Contains(string(text), "advertise {$POD_NAME}."+set.Spec.ServiceName+":7443") {
		t.Errorf("%s: the edges have no addresses of their own", folder)
	}
	var config struct {
		Apps struct {
			HTTP struct {
				Grace time.Duration `json:"grace_period"`
				Delay time.Duration `json:"shutdown_delay"`
			}
		}
	}
	must(t, json.Unmarshal(checkCaddyfile(t, name, string(text)), &config))
	const leave = 5 * time.Second // the cluster
	stop := config.Apps.HTTP.Grace + config.Apps.HTTP.Delay + leave
	if grace := time.Duration(set.Spec.Template.Spec.Grace) * time.Second; config.Apps.HTTP.Delay == 0 || grace <= stop {
		t.Errorf("%s: a pod has %v to stop, and needs %v", folder, grace, stop)
	}
}
