package main

import (
	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/e2e/lab"
)

// flags are those that every command has.
type flags struct {
	name   string
	subnet int
}

func (f *flags) open() (*lab.Lab, error) {
	return lab.Open(lab.Options{Name: f.name, Subnet: f.subnet})
}

func newRootCommand() *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:           "lab",
		Short:         "Real hosts, a registry and a hub on this machine",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	cmd.PersistentFlags().StringVar(&f.name, "name", "demo", "name of the lab; labs of different names run side by side")
	cmd.PersistentFlags().IntVar(&f.subnet, "subnet", -1, "third number of the lab's addresses 10.88.x.0/24 (default: the lowest free)")
	cmd.AddCommand(newDemoCommand(f), newDownCommand(f), newStatusCommand(f), newKubectlCommand(f), newShellCommand(f),
		newLogsCommand(f), newHostCommand(f), newRegistryCommand(), newProviderCommand(f))
	return cmd
}
