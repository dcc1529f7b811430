// Package man holds the manual pages, which are generated from the help of the commands: those of the system-agent by package generate,
// those of the hub by a test of hub/cli.
package man

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:generate go run ./generate

// markup are the characters of help that Markdown takes for markup: those of placeholders such as <file>, which it takes for HTML, and
// those of names such as CATTLE_ROLE_*, which it takes for emphasis.
var markup = strings.NewReplacer("<", `\<`, "_", `\_`, "*", `\*`)

// Prepare changes a command and its subcommands so that cobra, which generates pages from Markdown, keeps the text of their help. It leaves
// out the line that says when and by what a page was generated.
func Prepare(cmd *cobra.Command) {
	cmd.DisableAutoGenTag = true
	cmd.Use, cmd.Short, cmd.Long = markup.Replace(cmd.Use), markup.Replace(cmd.Short), markup.Replace(cmd.Long)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = markup.Replace(f.Usage) })
	for _, child := range cmd.Commands() {
		Prepare(child)
	}
}
