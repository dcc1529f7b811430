package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/authwebhook"
)

// administrators is the one group of Kubernetes that --allow-group may name.
const administrators = "system:masters"

func newAuthWebhook() *cobra.Command {
	v := &authwebhook.Verifier{Now: time.Now}
	var listen string
	var groups []string
	cmd := &cobra.Command{
		Use:   "auth-webhook",
		Short: "Tell the Kubernetes API server of this machine whose tokens of the hub are, until stopped",
		Long: `Answers the Kubernetes API server of the same machine whose a token is that the hub has made for people of this cluster, so that they reach
the cluster past the hub and also while the hub is away (the authorized cluster endpoint). It verifies tokens by the hub's public keys, asks
nobody and has no credential. Tokens that last are for the hub only, which knows whether they were revoked.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLog(cmd.OutOrStdout(), os.Getenv(envLogLevel))
			if err != nil {
				return err
			}
			switch {
			case v.Cluster == "":
				return errors.New("--cluster is missing: the name that the hub has for this cluster, which begins with c-m-")
			case v.KeysFile == "":
				return errors.New("--keys is missing: the file with the hub's public keys")
			}
			for _, group := range groups {
				if group != administrators {
					return fmt.Errorf("--allow-group %q: only %s may be allowed, all other groups of users are always known", group, administrators)
				}
			}
			v.Administrators = slices.Contains(groups, administrators)
			return authwebhook.Serve(cmd.Context(), listen, v, log)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&v.Cluster, "cluster", os.Getenv(envCluster), "name that the hub has for this cluster (also "+envCluster+")")
	flags.StringVar(&v.KeysFile, "keys", "", "file with the hub's public keys, a JSON Web Key Set")
	flags.StringVar(&listen, "listen", "127.0.0.1:6440", "address at which the API server asks")
	flags.StringArrayVar(&groups, "allow-group", nil, "system:masters makes administrators of the hub administrators of the cluster")
	return cmd
}
