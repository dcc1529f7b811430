package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drover-dev/drover/e2e/provider"
)

func newProviderCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{Use: "provider", Short: "The infrastructure provider that makes hosts of the lab for Cluster API"}
	cmd.AddCommand(
		&cobra.Command{
			Use:   "start",
			Short: "Install the provider in the lab's hub and start it",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				l, err := f.open()
				if err != nil {
					return err
				}
				unlock, err := l.Lock()
				if err != nil {
					return err
				}
				defer unlock()
				if !l.HubRuns() {
					return fmt.Errorf("lab %q has no hub that runs: lab demo makes one", l.Name)
				}
				hub, err := l.HubClient()
				if err != nil {
					return err
				}
				return newSteps(os.Stdout).do("Infrastructure provider", func() (string, error) {
					return "makes hosts for LabMachines", l.StartProvider(cmd.Context(), hub)
				})
			},
		},
		newProviderServeCommand(f),
	)
	return cmd
}

func newProviderServeCommand(f *flags) *cobra.Command {
	kubeconfig, listen := "", ""
	cmd := &cobra.Command{
		Use:    "serve",
		Short:  "Run the provider inside the lab",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := f.open()
			if err != nil {
				return err
			}
			if !l.Exists() {
				return fmt.Errorf("there is no lab %q", f.name)
			}
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return err
			}
			logger := logr.FromSlogHandler(slog.NewTextHandler(os.Stdout, nil))
			ctrl.SetLogger(logger)
			klog.SetLogger(logger)
			return provider.Run(cmd.Context(), provider.Options{Lab: l.Lab, Config: config, HealthListen: listen, Logger: logger})
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "opens the API with the provider's rights")
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9450", "where /healthz is served")
	_ = cmd.MarkFlagRequired("kubeconfig")
	return cmd
}
