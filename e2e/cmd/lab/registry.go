package main

import (
	"log"
	"os"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/e2e/registry"
)

func newRegistryCommand() *cobra.Command {
	dir, listen := "", ""
	serve := &cobra.Command{
		Use:   "serve",
		Short: "Serve a folder as a registry over plain HTTP",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return registry.Serve(cmd.Context(), dir, listen, log.New(os.Stdout, "", log.LstdFlags))
		},
	}
	serve.Flags().StringVar(&dir, "dir", "", "folder that keeps the images")
	serve.Flags().StringVar(&listen, "listen", "127.0.0.1:5000", "address and port")
	_ = serve.MarkFlagRequired("dir")
	cmd := &cobra.Command{Use: "registry", Short: "The registry of a lab", Hidden: true}
	cmd.AddCommand(serve)
	return cmd
}
