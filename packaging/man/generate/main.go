// Generate writes the manual pages of the system-agent into the current directory. It is a separate program, so that the agent does not
// link what it needs for that.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/agent/cli"
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
	disableAutoGenTag(root)
	date := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "Drover", Manual: "Drover system-agent", Date: &date}, dir)
}

// disableAutoGenTag leaves out the line that says when and by what a page was generated, and keeps placeholders such as <file>, which
// Markdown takes for HTML.
func disableAutoGenTag(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	placeholders := strings.NewReplacer("<", `\<`)
	cmd.Use, cmd.Long = placeholders.Replace(cmd.Use), placeholders.Replace(cmd.Long)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = placeholders.Replace(f.Usage) })
	for _, child := range cmd.Commands() {
		disableAutoGenTag(child)
	}
}
