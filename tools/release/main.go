// Command release builds a release of Postern: archives, packages for Linux, container images, SBOMs and checksums.
// Two runs for the same commit write the same bytes, in any folder. `./xcaddy.sh release` runs it.
//
//	main.go      flags, and the order of the steps
//	version.go   the version, for each package manager
//	programs.go  programs, their systems, and how they are compiled
//	docs.go      completions and manual pages
//	files.go     the content of archives, packages and images; archives
//	packages.go  deb, rpm, apk
//	image.go     images, as OCI layouts
//	sbom.go      CycloneDX
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is a run of the program.
type release struct {
	root    string // root folder of the repository
	out     string // folder for the results
	work    string // folder for temporary files
	version version
	commit  string
	time    time.Time // time of the commit, and of each file
	tags    string    // build tags of the gateway
	ldflags string
	targets []target // nil means all
	parts   []string

	programs []program // in the order in which they are built
}

var allParts = []string{"archives", "packages", "images", "sbom"}

func run(ctx context.Context, args []string) error {
	var r release
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	number := flags.String("version", "", "`VERSION`, like v0.9.0")
	root := flags.String("root", "../..", "the `FOLDER` of the repository")
	out := flags.String("out", "dist", "`FOLDER` for the results, in the repository; it is replaced")
	targets := flags.String("targets", "",
		"comma-separated `SYSTEMS` to build for, like linux/amd64,linux/armv7 (default: all)")
	programs := flags.String("programs", "connector,postern",
		"comma-separated `PROGRAMS` to build; the gateway hands out the connectors of the same run")
	parts := flags.String("parts", strings.Join(allParts, ","), "comma-separated `PARTS` to build")
	flags.StringVar(&r.tags, "tags", "", "build tags of the gateway")
	flags.StringVar(&r.ldflags, "ldflags", "-s -w", "flags of the linker")
	err := flags.Parse(args)
	if err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; use: xcaddy.sh release [VERSION] [FLAGS]", flags.Arg(0))
	}
	if r.version, err = parseVersion(*number); err != nil {
		return err
	}
	if r.targets, err = parseTargets(*targets); err != nil {
		return err
	}
	if r.programs, err = parsePrograms(*programs); err != nil {
		return err
	}
	r.parts = strings.Split(*parts, ",")
	for _, part := range r.parts {
		if !slices.Contains(allParts, part) {
			return fmt.Errorf("-parts: %q is not a part; the parts are %s", part, strings.Join(allParts, ", "))
		}
	}
	if r.root, err = filepath.Abs(*root); err != nil {
		return fmt.Errorf("finding the repository: %w", err)
	}
	if !filepath.IsAbs(*out) {
		*out = filepath.Join(r.root, *out)
	}
	if err := r.readCommit(ctx); err != nil {
		return err
	}
	return r.into(ctx, *out)
}

// readCommit reads the commit and its time. SOURCE_DATE_EPOCH replaces the time.
func (r *release) readCommit(ctx context.Context) error {
	show := exec.CommandContext(ctx, "git", "log", "-1", "--format=%H %ct")
	show.Dir = r.root
	out, err := show.Output()
	commit, seconds, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if given := os.Getenv("SOURCE_DATE_EPOCH"); given != "" {
		seconds = given
	} else if err != nil {
		return fmt.Errorf("reading the time of the commit: %w; build in a clone, or set SOURCE_DATE_EPOCH", err)
	}
	epoch, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %q is not a number of seconds", seconds)
	}
	r.commit, r.time = commit, time.Unix(epoch, 0).UTC()
	return nil
}

// into builds the release and puts it into a folder, which must be new or have an earlier release. It replaces
// the folder only if everything succeeds.
func (r *release) into(ctx context.Context, folder string) (err error) {
	if _, err := os.Stat(filepath.Join(folder, checksumsName)); err != nil {
		if found, err := os.ReadDir(folder); !errors.Is(err, fs.ErrNotExist) && len(found) > 0 {
			return fmt.Errorf("%s has files but is not a release, and would be replaced; move it, or choose another folder "+
				"with -out", folder)
		}
	}
	if r.work, err = os.MkdirTemp("", "postern-release-"); err != nil {
		return fmt.Errorf("creating a temporary folder: %w", err)
	}
	defer os.RemoveAll(r.work)
	r.out = folder + ".new"
	if err := os.RemoveAll(r.out); err != nil {
		return fmt.Errorf("removing an earlier attempt: %w", err)
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return fmt.Errorf("creating the folder for the results: %w", err)
	}
	defer os.RemoveAll(r.out)
	for _, p := range r.programs {
		if err := r.program(ctx, p); err != nil {
			return err
		}
	}
	if err := r.checksums(); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("removing the previous release: %w", err)
	}
	return os.Rename(r.out, folder)
}

// program builds a program for its targets, and publishes it.
func (r *release) program(ctx context.Context, p program) error {
	targets := r.targetsOf(p)
	if len(targets) == 0 {
		return nil
	}
	built := step("building " + p.name)
	group, cancelable := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for _, t := range targets {
		group.Go(func() error { return r.compile(cancelable, p, t) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := r.document(ctx, p); err != nil {
		return err
	}
	built()
	return r.publish(p, targets)
}

// publish writes all results that contain the compiled program.
func (r *release) publish(p program, targets []target) error {
	defer step("packing " + p.name)()
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	// The largest results come first, because they take longest.
	if slices.Contains(r.parts, "images") && slices.ContainsFunc(targets, target.linux) {
		group.Go(func() error { return r.image(p, slices.DeleteFunc(slices.Clone(targets), target.notLinux)) })
	}
	for _, t := range targets {
		if slices.Contains(r.parts, "packages") && t.linux() {
			for _, format := range formats {
				group.Go(func() error { return r.pack(p, t, format) })
			}
		}
		group.Go(func() error { return r.archive(p, t) })
		if slices.Contains(r.parts, "sbom") {
			group.Go(func() error { return r.sbom(p, t) })
		}
	}
	return group.Wait()
}

// step reports the start of a step. The function that it returns reports the step's duration.
func step(name string) (done func()) {
	start := time.Now()
	fmt.Fprintf(os.Stderr, "--- %s\n", name)
	return func() { fmt.Fprintf(os.Stderr, "--- %s took %.0f s\n", name, time.Since(start).Seconds()) }
}

const checksumsName = "checksums.txt"

// checksums writes the SHA-256 of each file, in the format of sha256sum.
func (r *release) checksums() error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return fmt.Errorf("listing the results: %w", err)
	}
	var text strings.Builder
	for _, entry := range entries {
		file, err := os.Open(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return fmt.Errorf("computing checksums: %w", err)
		}
		sum := sha256.New()
		_, err = io.Copy(sum, file)
		file.Close()
		if err != nil {
			return fmt.Errorf("computing checksums: %w", err)
		}
		fmt.Fprintf(&text, "%x  %s\n", sum.Sum(nil), entry.Name())
	}
	return os.WriteFile(filepath.Join(r.out, checksumsName), []byte(text.String()), 0o644)
}
