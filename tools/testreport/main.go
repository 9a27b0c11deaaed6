// Command testreport reads the output of go test -json. It prints a line for each package, the output of what failed,
// and the number of tests. The reasons of skipped tests go to a file. Lines that are not JSON are printed as they are.
//
//	go test -json ./... | testreport -skips FILE
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
)

// event is a line of go test -json: see go doc test2json. Events of builds have an ImportPath.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64 // in seconds
}

// of is a test, or a package if it has no Test.
type of struct{ Package, Test string }

// report is the state of a run.
type report struct {
	out, skips      io.Writer
	output          map[of][]string // of tests that run, and of packages
	passed, skipped int             // tests and subtests
}

func main() {
	log.SetFlags(0)
	skips := flag.String("skips", os.DevNull, "the `file` to which skipped tests and their reasons are appended")
	flag.Parse()
	file, err := os.OpenFile(*skips, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	r := &report{out: os.Stdout, skips: file, output: map[of][]string{}}
	if err := r.read(os.Stdin); err != nil {
		log.Fatal(err)
	}
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		var e event
		switch {
		case line == "":
		case json.Unmarshal([]byte(line), &e) != nil:
			fmt.Fprint(r.out, line)
		default:
			r.event(e)
		}
		if err == io.EOF {
			fmt.Fprintf(r.out, "%d tests passed, %d skipped\n", r.passed, r.skipped)
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) event(e event) {
	it := of{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output[it] = append(r.output[it], e.Output)
	case "pass", "skip", "fail":
		r.end(it, e)
		delete(r.output, it)
	}
}

// end reports the end of a test or of a package.
func (r *report) end(it of, e event) {
	switch {
	case e.Action == "fail" && it.Test == "":
		for test, output := range r.output { // a panic or a timeout leaves tests without an end
			if test.Package == it.Package {
				fmt.Fprint(r.out, strings.Join(output, ""))
			}
		}
	case e.Action == "fail":
		fmt.Fprint(r.out, strings.Join(r.output[it], ""))
	case it.Test == "" && e.Action == "pass":
		fmt.Fprintf(r.out, "ok\t%s\t%.1fs\n", it.Package, e.Elapsed)
	case it.Test == "": // it has no tests
	case e.Action == "pass":
		r.passed++
	default:
		r.skipped++
		fmt.Fprintf(r.skips, "%s: %s\n", it.Test, reason(r.output[it]))
	}
}

// reason returns the last message of a skipped test, without the place in the source.
func reason(output []string) string {
	for _, line := range slices.Backward(output) {
		if _, text, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(strings.TrimSpace(line), "---") {
			return strings.TrimSpace(text)
		}
	}
	return "without a reason"
}
