package main

import (
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nonroot is the id of the user and the group of programs in images.
const nonroot = 65532

// image writes a program's image for several architectures: an OCI layout in a tar file.
// `skopeo copy oci-archive:FILE …`, `podman load` and `docker load` read it.
func (r *release) image(p program, targets []target) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, t := range targets {
		image, err := r.platformImage(p, t)
		if err != nil {
			return fmt.Errorf("building the image of %s for %s: %w", p.name, t, err)
		}
		platform := &v1.Platform{OS: t.system}
		platform.Architecture, platform.Variant = imageArchitecture(t)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	index = mutate.Annotations(index, r.labels(p)).(v1.ImageIndex)
	folder := filepath.Join(r.work, p.name, "layout")
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("writing the image of %s: %w", p.name, err)
	}
	if err := path.AppendIndex(index,
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version.text})); err != nil {
		return fmt.Errorf("writing the image of %s: %w", p.name, err)
	}
	var entries []entry
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			entries = append(entries, entry{name: filepath.ToSlash(path[len(folder)+1:]), mode: 0o644, source: path})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("reading the image of %s: %w", p.name, err)
	}
	return create(filepath.Join(r.out, fmt.Sprintf("%s_%s_oci.tar", p.pack, r.version.text)), func(w io.Writer) error {
		return writeTar(w, entries, r.time)
	})
}

// imageArchitecture returns the architecture and its variant in OCI's terms.
func imageArchitecture(t target) (architecture, variant string) {
	if goarch, goarm := t.architecture(); goarm != "" {
		return goarch, "v" + goarm
	}
	return t.machine, ""
}

// platformImage returns the image for one target. It has one layer.
func (r *release) platformImage(p program, t target) (v1.Image, error) {
	path := filepath.Join(r.work, p.name, "layer-"+t.machine+".tar")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := create(path, func(w io.Writer) error { return writeTar(w, r.imageEntries(p, t), r.time) }); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(6))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image,
		mutate.Addendum{
			Layer:   layer,
			History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "postern " + r.version.text},
		})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Created, config.Config = t.system, v1.Time{Time: r.time}, r.imageConfig(p)
	config.Architecture, config.Variant = imageArchitecture(t)
	return mutate.ConfigFile(image, config)
}

// imageEntries returns the files of an image: the program and the system files that it needs.
func (r *release) imageEntries(p program, t target) []entry {
	var roots []byte
	for root := range bundle.Roots() { // from Mozilla's list, in the version of this module
		roots = append(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})...)
	}
	entries := append(r.executables(p, t),
		entry{
			name: "etc/passwd", mode: 0o644,
			text: fmt.Appendf(nil, "root:x:0:0:root:/root:/sbin/nologin\npostern:x:%d:%[1]d:Postern:/data:/sbin/nologin\n",
				nonroot),
		},
		entry{name: "etc/group", mode: 0o644, text: fmt.Appendf(nil, "root:x:0:\npostern:x:%d:\n", nonroot)},
		entry{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, text: roots},
		entry{name: "tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777},
		entry{name: "data", mode: fs.ModeDir | 0o700, owner: nonroot},
		entry{name: "config", mode: fs.ModeDir | 0o700, owner: nonroot})
	if p.name == gateway.name {
		entries = append(entries, entry{
			name: "etc/postern/Caddyfile", mode: 0o644,
			source: filepath.Join(r.root, "packaging", "Caddyfile.image"),
		})
	}
	return entries
}

// imageConfig returns the configuration for containers of an image.
func (r *release) imageConfig(p program) v1.Config {
	config := v1.Config{
		User: fmt.Sprintf("%d:%[1]d", nonroot), WorkingDir: "/data", Labels: r.labels(p), StopSignal: "SIGTERM",
		Volumes: map[string]struct{}{"/data": {}, "/config": {}},
		Env: []string{
			"PATH=/usr/bin", "HOME=/data", "XDG_DATA_HOME=/data", "XDG_CONFIG_HOME=/config",
			"XDG_RUNTIME_DIR=/config",
		},
	}
	check := []string{"CMD", "connector", "wait", "--timeout", "2s", "--config", "/config/connector.json"}
	config.Entrypoint, config.Cmd = []string{"connector"}, []string{"run", "--config", "/config/connector.json"}
	if p.name == gateway.name {
		config.ExposedPorts = map[string]struct{}{"80/tcp": {}, "443/tcp": {}, "443/udp": {}, "7443/udp": {}}
		config.Entrypoint, config.Cmd = []string{"postern"}, []string{"run", "--config", "/etc/postern/Caddyfile"}
		config.Env = append(config.Env, "CADDY_ADMIN=unix//config/admin.sock|0600") // for commands in the container
		check = []string{"CMD", "postern", "gateway", "status"}
	}
	config.Healthcheck = &v1.HealthConfig{
		Test: check, Interval: 30 * time.Second, Timeout: 5 * time.Second,
		StartPeriod: 30 * time.Second, Retries: 3,
	}
	return config
}

// labels returns the labels of an image.
func (r *release) labels(p program) map[string]string {
	labels := map[string]string{}
	for name, value := range map[string]string{
		"title": p.pack, "description": p.summary, "source": homepage, "version": r.version.text,
		"revision": r.commit, "licenses": "Apache-2.0", "created": r.time.Format(time.RFC3339),
	} {
		labels["org.opencontainers.image."+name] = value
	}
	return labels
}
