package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// readImage unpacks an image into a root folder, and returns its configuration.
func readImage(t *testing.T, name string) (root string, config *v1.ConfigFile) {
	t.Helper()
	needLinux(t)
	folder := t.TempDir()
	file, err := os.Open(filepath.Join(built.out, name+"_0.9.0_oci.tar"))
	must(t, err)
	defer file.Close()
	for name, blob := range readTar(t, file) {
		write(t, filepath.Join(folder, name), string(blob.text), 0o644)
	}
	top, err := layout.ImageIndexFromPath(folder)
	must(t, err)
	if err := validate.Index(top); err != nil { // checks every digest and size
		t.Error(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 ||
		manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "0.9.0" {
		t.Fatalf("the layout has %+v, %v", manifest, err)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	must(t, err)
	platforms, err := index.IndexManifest()
	if err != nil || len(platforms.Manifests) != 1 || platforms.Manifests[0].Platform.String() != host.String() {
		t.Fatalf("the index has %+v, %v", platforms, err)
	}
	image, err := index.Image(platforms.Manifests[0].Digest)
	must(t, err)
	if config, err = image.ConfigFile(); err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	must(t, err)
	defer content.Close()
	root = t.TempDir()
	unpack := exec.Command("tar", "-x", "-p", "--numeric-owner", "-C", root)
	unpack.Stdin = content
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	return root, config
}

// container returns a command that runs in an image according to its configuration: as its user, with a
// read-only root folder, volumes, and a separate network.
func container(config *v1.ConfigFile, root string, args ...string) *exec.Cmd {
	const script = `
mount --bind "$0" "$0" && mount -o remount,bind,ro "$0"
for volume in data config; do mount -t tmpfs -o uid=65532,gid=65532,mode=0700 none "$0/$volume"; done
ip link set lo up
echo 0 >/proc/sys/net/ipv4/ip_unprivileged_port_start # as Docker does
exec chroot --userspec="$USERSPEC" "$0" "$@"`
	command := exec.Command("sh", append([]string{"-ec", script, root}, args...)...)
	command.Env = append(config.Config.Env, "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "USERSPEC="+config.Config.User)
	command.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Pdeathsig:    syscall.SIGKILL,
	}
	return command
}

// inside runs another command in the namespaces of a container.
func inside(config *v1.ConfigFile, root string, running *exec.Cmd, args ...string) *exec.Cmd {
	enter := []string{
		"--target", strconv.Itoa(running.Process.Pid), "--mount", "--net", "chroot",
		"--userspec=" + config.Config.User, root,
	}
	command := exec.Command("nsenter", append(enter, args...)...)
	command.Env = append(config.Config.Env, "PATH=/usr/bin:/bin:/usr/sbin:/sbin")
	return command
}

// The gateway runs in its image as an unprivileged user, becomes healthy, serves the console, and starts again
// after it was killed.
func TestImageOfGateway(t *testing.T) {
	needRoot(t)
	root, config := readImage(t, "postern")
	checkImage(t, config)
	if len(config.Config.ExposedPorts) != 4 {
		t.Errorf("the ports are %v", config.Config.ExposedPorts)
	}
	var log bytes.Buffer
	running := container(config, root, append(config.Config.Entrypoint, config.Config.Cmd...)...)
	running.Stderr = &log
	must(t, running.Start())
	stopped := false
	defer func() {
		if !stopped {
			running.Process.Kill()
			running.Wait()
		}
	}()
	check := config.Config.Healthcheck.Test[1:]
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		out, err := inside(config, root, running, check...).CombinedOutput()
		if err == nil {
			if !strings.Contains(string(out), "v0.9.0") {
				t.Errorf("the health check prints %s", out)
			}
			break
		}
		if time.Since(start) > 2*time.Minute {
			running.Process.Kill()
			running.Wait()
			stopped = true
			t.Fatalf("not healthy: %v\n%s\n%s", err, out, &log)
		}
	}
	curl := exec.Command("nsenter", "--target", strconv.Itoa(running.Process.Pid), "--net", "curl", "-sS", "-o",
		"/dev/null", "-w", "%{http_code}", "http://localhost/console/")
	if out, err := curl.CombinedOutput(); err != nil ||
		!strings.HasPrefix(string(out), "2") && !strings.HasPrefix(string(out), "3") {
		t.Errorf("the console answers %s, %v", out, err)
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(running.Process.Pid) + "/status")
	if err != nil || !bytes.Contains(status, []byte("Uid:\t65532\t65532\t65532\t65532\n")) {
		t.Errorf("the gateway runs as another user, %v\n%s", err, status)
	}
	running.Process.Signal(syscall.SIGTERM)
	if err := running.Wait(); err != nil {
		t.Errorf("the gateway ends with %v\n%s", err, &log)
	}
	stopped = true
}

// The connector runs in its image as an unprivileged user. Without a configuration, its error has the name of
// the file. Without a tunnel, it is unhealthy.
func TestImageOfConnector(t *testing.T) {
	needRoot(t)
	root, config := readImage(t, "postern-connector")
	checkImage(t, config)
	out, err := container(config, root, append(config.Config.Entrypoint, "--version")...).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "connector v0.9.0\n") {
		t.Errorf("connector --version prints %s, %v", out, err)
	}
	out, err = container(config, root, append(config.Config.Entrypoint, config.Config.Cmd...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "/config/connector.json") {
		t.Errorf("without a configuration, the connector ends with %v and prints\n%s", err, out)
	}
	if out, err := container(config, root, config.Config.Healthcheck.Test[1:]...).CombinedOutput(); err == nil {
		t.Errorf("the connector is healthy without a tunnel:\n%s", out)
	}
}

// checkImage checks the common properties of images.
func checkImage(t *testing.T, config *v1.ConfigFile) {
	t.Helper()
	c := config.Config
	if config.OS != "linux" || config.Architecture != host.machine || !config.Created.Equal(built.time) ||
		c.User != "65532:65532" {
		t.Errorf("the configuration is %+v", config)
	}
	for name, want := range map[string]string{
		"source": homepage, "version": "0.9.0", "licenses": "Apache-2.0",
		"revision": "abc",
	} {
		if got := c.Labels["org.opencontainers.image."+name]; got != want {
			t.Errorf("the label %s is %q, want %q", name, got, want)
		}
	}
	if _, data := c.Volumes["/data"]; !data || len(c.Volumes) != 2 || len(c.Healthcheck.Test) < 2 ||
		c.Healthcheck.Test[0] != "CMD" {
		t.Errorf("the volumes are %v, the check is %v", c.Volumes, c.Healthcheck)
	}
}
