// Generate writes the manual pages of the system-agent into the current directory. It is a separate program, so that the agent does not
// link what it needs for that.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra/doc"

	"github.com/drover-dev/drover/agent/cli"
	"github.com/drover-dev/drover/packaging/man"
)

func main() {
	if err := generate("."); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate(dir string) error {
	// Defaults in the help come from the environment; the pages must not depend on who generates them.
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
	man.Prepare(root)
	date := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Drover", Manual: "Drover system-agent", Date: &date}, dir)
}
