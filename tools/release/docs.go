package main

import (
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// shells are the shells with completions, and the patterns of the files' names.
var shells = []struct{ shell, pattern string }{
	{"bash", "%s.bash"}, {"zsh", "_%s"}, {"fish", "%s.fish"}, {"powershell", "%s.ps1"},
}

func (r *release) completion(p program, i int) string {
	return filepath.Join(r.work, p.name, "completions", fmt.Sprintf(shells[i].pattern, p.name))
}

// manual returns the folder of a program's manual pages.
func (r *release) manual(p program) string { return filepath.Join(r.work, p.name, "man") }

// document writes a program's completions and manual pages. It runs the program, so this needs a program for
// this machine.
func (r *release) document(ctx context.Context, p program) error {
	executable := r.compiled(p, host)
	if _, err := os.Stat(executable); err != nil {
		if err := r.compile(ctx, p, host); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(r.manual(p), 0o755); err != nil {
		return fmt.Errorf("creating a folder for manual pages: %w", err)
	}
	for i, s := range shells {
		text, err := r.run(ctx, executable, "completion", s.shell)
		if err != nil {
			return err
		}
		if err := create(r.completion(p, i), entry{text: text}.copyTo); err != nil {
			return err
		}
	}
	if p.name == gateway.name {
		if _, err := r.run(ctx, executable, "manpage", "--directory", r.manual(p)); err != nil {
			return err
		}
	} else if err := r.goCommand(ctx,
		[]string{
			"test", "-vet=off", "-count=1", "-run", "^TestManualPages$", p.source, "-args", "-manpages",
			r.manual(p),
		}); err != nil {
		return err
	}
	return r.compressManual(p)
}

// run runs a compiled program and returns its output.
func (r *release) run(ctx context.Context, executable string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, executable, args...)
	// Help texts contain paths of the user's folders.
	command.Env = []string{"HOME=/root", "SOURCE_DATE_EPOCH=" + fmt.Sprint(r.time.Unix())}
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", command, err)
	}
	return out, nil
}

// compressManual adds compressed copies of the manual pages, for packages.
func (r *release) compressManual(p program) error {
	pages, err := filepath.Glob(filepath.Join(r.manual(p), "*."+p.section))
	if err != nil || len(pages) == 0 {
		return fmt.Errorf("%s wrote no manual pages", p.name)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return fmt.Errorf("reading a manual page: %w", err)
		}
		err = create(page+".gz", func(w io.Writer) error {
			z, _ := gzip.NewWriterLevel(w, gzip.BestCompression) // the level is valid
			_, err := z.Write(text)
			return cmp.Or(err, z.Close())
		})
		if err != nil {
			return err
		}
	}
	return nil
}
