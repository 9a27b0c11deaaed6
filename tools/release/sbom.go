package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// The used parts of CycloneDX 1.6: https://cyclonedx.org/docs/1.6/json/
type (
	bill struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Metadata   metadata    `json:"metadata"`
		Components []component `json:"components"`
	}
	metadata struct {
		Timestamp time.Time `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Type    string `json:"type"`
		Ref     string `json:"bom-ref"`
		Name    string `json:"name"`
		Version string `json:"version"`
		PURL    string `json:"purl"`
	}
)

// sbom writes the list of the modules in a program, from `go version -m`, and the standard library.
func (r *release) sbom(p program, t target) error {
	info, err := buildinfo.ReadFile(r.compiled(p, t))
	if err != nil {
		return fmt.Errorf("reading the modules of %s: %w", p.name, err)
	}
	goarch, _ := t.architecture()
	program := newComponent("application", info.Main.Path, "v"+r.version.text)
	program.PURL += "?goos=" + t.system + "&goarch=" + goarch + "#" + strings.TrimPrefix(p.source, "./")
	program.Name = p.name
	modules := []component{newComponent("library", "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		modules = append(modules, moduleComponent(m))
	}
	b := bill{"CycloneDX", "1.6", 1, metadata{r.time, program}, modules}
	return create(filepath.Join(r.out, r.fileName(p.name, t, ".cdx.json")), func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(b)
	})
}

func moduleComponent(m *debug.Module) component {
	m = cmp.Or(m.Replace, m)
	return newComponent("library", m.Path, m.Version)
}

func newComponent(kind, path, version string) component {
	purl := "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
	return component{kind, purl, path, version, purl}
}
