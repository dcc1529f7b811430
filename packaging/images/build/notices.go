package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/packaging/notices"
)

// newNotices writes the licenses for an archive of programs.
func newNotices() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "notices PROGRAM...",
		Short: "Collect the licenses of what programs contain",
		Long: `Writes the licenses and notices of the Go modules that are compiled into any PROGRAM, and those of
Go's standard library, into one file. They are read from Go's module cache; what is missing there
is downloaded.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var collector notices.Collector
			text, err := collector.Collect(cmd.Context(), args...)
			if err != nil {
				return err
			}
			return os.WriteFile(output, text, 0o644)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", notices.FileName, "file to write")
	return cmd
}
