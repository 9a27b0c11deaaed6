package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// program is a program of Postern.
type program struct {
	name    string // file name without a suffix
	source  string // Go package
	pack    string // name of its packages
	section string // section of its manual pages
	summary string
	targets []target
}

var (
	gateway = program{
		name: "postern", source: "./cmd/postern", pack: "postern", section: "8",
		summary: "Model gateway: publishes model servers on your own hardware as an authenticated API",
		targets: []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}},
	}
	connector = program{
		name: "connector", source: "./connector", pack: "postern-connector", section: "1",
		summary: "Connector: publishes model servers through a Postern gateway",
		targets: []target{
			{"linux", "amd64"},
			{"linux", "arm64"},
			{"linux", "armv7"},
			{"darwin", "amd64"},
			{"darwin", "arm64"},
			{"windows", "amd64"},
			{"windows", "arm64"},
		},
	}
	host = target{runtime.GOOS, runtime.GOARCH}
)

// target is a system and an architecture, in the form of file names.
type target struct{ system, machine string }

func (t target) String() string { return t.system + "/" + t.machine }
func (t target) linux() bool    { return t.system == "linux" }
func (t target) notLinux() bool { return !t.linux() }

// architecture returns GOARCH, and GOARM.
func (t target) architecture() (goarch, goarm string) {
	if t.machine == "armv7" {
		return "arm", "7"
	}
	return t.machine, ""
}

// executable returns the file name of a program.
func (t target) executable(p program) string {
	if t.system == "windows" {
		return p.name + ".exe"
	}
	return p.name
}

// parseTargets parses a list of targets.
func parseTargets(list string) (targets []target, err error) {
	if list == "" {
		return connector.targets, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(connector.targets, func(t target) bool { return t.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("-targets: %q is unknown; the systems are %v", name, connector.targets)
		}
		targets = append(targets, connector.targets[i])
	}
	return targets, nil
}

// parsePrograms parses a list of programs. The connector is the first, because the gateway includes its
// archives.
func parsePrograms(list string) (programs []program, err error) {
	names := strings.Split(list, ",")
	for _, p := range []program{connector, gateway} {
		if slices.Contains(names, p.name) {
			programs = append(programs, p)
		}
	}
	if len(programs) != len(names) {
		return nil, fmt.Errorf("-programs: %q is not a list of %s and %s", list, connector.name, gateway.name)
	}
	return programs, nil
}

// targetsOf returns the targets of a program in this run.
func (r *release) targetsOf(p program) []target {
	return slices.DeleteFunc(slices.Clone(p.targets), func(t target) bool { return !slices.Contains(r.targets, t) })
}

// compiled returns the path of a compiled program.
func (r *release) compiled(p program, t target) string {
	return filepath.Join(r.work, "bin", t.system+"_"+t.machine, t.executable(p))
}

// compile compiles a program. The linker sets the commit. Go's own information comes from version control, and
// would be missing in copies that are not clones.
func (r *release) compile(ctx context.Context, p program, t target) error {
	args := []string{"build", "-buildvcs=false", "-ldflags", r.ldflags, "-o", r.compiled(p, t)}
	if p.name == gateway.name {
		args = append(args, "-tags", r.tags)
	}
	goarch, goarm := t.architecture()
	return r.goCommand(ctx, append(args, p.source), "GOOS="+t.system, "GOARCH="+goarch, "GOARM="+goarm, "GOAMD64=v1",
		"GOARM64=v8.0")
}

// goCommand runs a go command in the repository.
func (r *release) goCommand(ctx context.Context, args []string, env ...string) error {
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = r.root
	command.Env = append(os.Environ(),
		append(env, "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off", "SOURCE_DATE_EPOCH="+fmt.Sprint(r.time.Unix()))...)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s, with %s: %w\n%s", command, strings.Join(env, " "), err, out)
	}
	return nil
}
