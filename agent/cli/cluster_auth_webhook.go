package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/authwebhook"
)

// administrators is the only group that --allow-group accepts.
const administrators = "system:masters"

func newAuthWebhook() *cobra.Command {
	v := &authwebhook.Verifier{}
	var listen string
	var groups []string
	cmd := &cobra.Command{
		Use:   "auth-webhook",
		Short: "Run the token-authentication webhook for the API server",
		Long: `Run the token-authentication webhook for this node's Kubernetes API server. It authenticates short-lived tokens that the hub has
issued for users of this cluster, so that they can use the cluster without the hub (authorized cluster endpoint). Tokens are verified
with the hub's public keys; the webhook connects to no server and has no credentials. Persistent tokens are refused: only the hub knows
whether they are revoked.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := newClusterLog(cmd.OutOrStdout())
			switch {
			case v.Cluster == "":
				return errors.New("--cluster is required: the name of this cluster in the hub, such as c-m-abcdefgh")
			case v.KeysFile == "":
				return errors.New("--keys is required: the file with the hub's public keys")
			}
			for _, group := range groups {
				if group != administrators {
					return fmt.Errorf("--allow-group %q: must be %s; other groups are always passed on", group, administrators)
				}
			}
			v.Administrators = slices.Contains(groups, administrators)
			return authwebhook.Serve(cmd.Context(), listen, v, log)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&v.Cluster, "cluster", os.Getenv(envCluster), "name of this cluster in the hub (also $"+envCluster+")")
	flags.StringVar(&v.KeysFile, "keys", "", "file with the hub's public keys (JSON Web Key Set)")
	flags.StringVar(&listen, "listen", "127.0.0.1:6440", "listen address")
	flags.StringArrayVar(&groups, "allow-group", nil,
		"group to pass on in addition: only system:masters, which makes administrators of the hub administrators of the cluster")
	return cmd
}
