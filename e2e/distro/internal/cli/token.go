package cli

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

func token() *cobra.Command {
	r := &remote{}
	c := &cobra.Command{Use: "token", Short: "Manage the cluster's token"}
	r.add(c, "server", "token")
	c.PersistentFlags().String("kubeconfig", "", "Accepted for compatibility")
	rotate := &cobra.Command{Use: "rotate", Short: "Replace the token", Args: cobra.NoArgs}
	fresh := rotate.Flags().String("new-token", "", "New token (default: a random one)")
	rotate.RunE = func(c *cobra.Command, _ []string) error {
		fmt.Println("\033[33mWARNING\033[0m: Keep the old token: snapshots that were taken before can only be restored with it.")
		server, err := r.dial(c.Context(), changeTimeout)
		if err != nil {
			return err
		}
		if err := server.Call(c.Context(), http.MethodPut, supervisor.TokenPath, supervisor.TokenRequest{NewToken: fresh}, nil); err != nil {
			return err
		}
		fmt.Println(flavour.Name("Token rotated, restart * nodes with new token"))
		return nil
	}
	c.AddCommand(rotate)
	return c
}
