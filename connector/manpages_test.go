package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

var manpages = flag.String("manpages", "", "the folder to write the manual pages to, for a release")

// Each command has a manual page. The connector itself cannot write them: that would make the
// program 5 % larger.
func TestManualPages(t *testing.T) {
	folder := *manpages
	if folder == "" {
		folder = t.TempDir()
	}
	root := rootCommand(system{getenv: func(string) string { return "" }})
	if err := doc.GenManTree(root, &doc.GenManHeader{Title: "connector", Source: "Postern", Manual: "Postern"},
		folder); err != nil {
		t.Fatal(err)
	}
	var check func(*cobra.Command)
	check = func(command *cobra.Command) {
		name := strings.ReplaceAll(command.CommandPath(), " ", "-")
		page, err := os.ReadFile(filepath.Join(folder, name+".1"))
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(string(page), command.Short) {
			t.Errorf("the page of %s lacks its description:\n%s", name, page)
		}
		for _, sub := range command.Commands() {
			if sub.IsAvailableCommand() {
				check(sub)
			}
		}
	}
	check(root)
}
