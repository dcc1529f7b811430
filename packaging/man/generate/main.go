// Generate writes the manual pages of the system-agent into the current folder. It is a program of its own, so that the agent needs
// not carry what it takes to write them.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/drover-dev/drover/agent/cli"
)

func main() {
	if err := generate("."); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate(dir string) error {
	// The help tells defaults from the environment; the pages must not depend on who makes them.
	os.Clearenv()
	old, err := filepath.Glob(filepath.Join(dir, "system-agent*.1"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	root := cli.Root()
	quiet(root)
	date := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Drover", Manual: "Drover system-agent", Date: &date}, dir)
}

// quiet leaves out the line that says when and by what a page was made.
func quiet(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	for _, child := range cmd.Commands() {
		quiet(child)
	}
}
