package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

func newNodeCommand() *cobra.Command {
	return &cobra.Command{Use: "node-command", RunE: func(*cobra.Command, []string) error { return errors.New("todo") }}
}
