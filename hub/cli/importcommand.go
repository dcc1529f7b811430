package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// importOptions are the flags of "hub import-command".
type importOptions struct{ registrationOptions }

func newImportCommand() *cobra.Command {
	opts := &importOptions{}
	cmd := &cobra.Command{
		Use:   "import-command <namespace>/<cluster>",
		Short: "Print the command that imports a cluster",
		Long: `Print the command that imports an existing cluster: a Cluster without spec.rkeConfig. Run the command with a kubeconfig of the cluster to
import. It deploys the cluster-agent.

The command contains a new registration token. Anybody who has the token can pose as the cluster. It does not expire unless --ttl is set,
because an agent that was disconnected for longer than eight days needs it to connect again: its own credential is valid for a day, and can
be renewed for a week after that. To revoke the token, delete its ClusterRegistrationToken in the namespace of the management Cluster.`,
		Args: oneCluster,
		RunE: opts.printCommand(func() error { return nil }, opts.run),
	}
	opts.addFlags(cmd.Flags(), 0, "manifest", "whoever runs the command")
	return cmd
}

// run returns the command that imports the cluster.
func (o *importOptions) run(ctx context.Context, c client.Client, key client.ObjectKey) (string, error) {
	management, err := o.managementCluster(ctx, c, key)
	if err != nil {
		return "", err
	}
	cluster := &provisioningv1.Cluster{}
	if err := c.Get(ctx, key, cluster); err != nil {
		return "", explain(fmt.Errorf("reading Cluster %s: %w", key, err))
	}
	if cluster.Spec.RKEConfig != nil {
		return "", fmt.Errorf("the Cluster %s has spec.rkeConfig: the hub makes it and deploys its agent; "+
			"\"hub node-command\" adds machines to it", key)
	}
	return o.create(ctx, c, management, registrationCommand{
		name: "import-command", purpose: managementv3.AgentsPurpose,
		templates: func(status *managementv3.ClusterRegistrationTokenStatus) registrationTemplates {
			return registrationTemplates{verified: status.VerifiedCommand, insecure: status.InsecureCommand, publicCA: status.Command}
		},
	})
}
