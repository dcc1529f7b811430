package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// importOptions are the flags of "hub import-command".
type importOptions struct {
	connection
	token    registrationOptions
	wait     time.Duration
	insecure bool
	publicCA bool
}

func newImportCommand() *cobra.Command {
	opts := &importOptions{}
	cmd := &cobra.Command{
		Use:   "import-command <namespace>/<cluster>",
		Short: "Print the command that imports a cluster",
		Long: `Print the command that imports an existing cluster: a Cluster without spec.rkeConfig. Run the command with a kubeconfig of the cluster to
import. It deploys the cluster-agent.

The command contains a new registration token. Anybody who has the token can pose as the cluster. It does not expire unless --ttl is set,
because an agent that was disconnected for longer than the lifetime of its own credential, a day, needs it to connect again. To revoke the
token, delete its ClusterRegistrationToken in the namespace of the management Cluster.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("import-command needs one argument: <namespace>/<cluster>")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := clusterKey(args[0])
			if err == nil {
				err = opts.token.check()
			}
			if err != nil {
				return err
			}
			c, err := opts.client()
			if err != nil {
				return err
			}
			command, err := opts.run(cmd.Context(), c, key)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), command)
			return err
		},
	}
	opts.addFlags(cmd.Flags())
	return cmd
}

func (o *importOptions) addFlags(flags *pflag.FlagSet) {
	o.connection.addFlags(flags)
	o.token.addFlags(flags, 0)
	flags.DurationVar(&o.wait, "wait", 30*time.Second, "how long to wait for the hub to make the command")
	flags.BoolVar(&o.insecure, "insecure", false, "a shorter command that downloads the manifest without checking whom from")
	flags.BoolVar(&o.publicCA, "public-ca", false,
		"whoever runs the command trusts the certificate at the hub's URL already, for instance that of a load balancer")
}

// run makes a token and returns the command with it, as soon as the hub has made that. A token that nobody is told of does not stay.
func (o *importOptions) run(ctx context.Context, c client.Client, key client.ObjectKey) (string, error) {
	management, err := awaitFor(ctx, o.wait, func() (string, error) { return managementCluster(ctx, c, key) })
	if err != nil {
		return "", err
	}
	cluster := &provisioningv1.Cluster{}
	if err := c.Get(ctx, key, cluster); err != nil {
		return "", explain(fmt.Errorf("reading Cluster %s: %w", key, err))
	}
	if cluster.Spec.RKEConfig != nil {
		return "", fmt.Errorf("the Cluster %s has spec.rkeConfig: the hub makes it and deploys its agent; \"hub node-command\" adds machines "+
			"to it", key)
	}
	crt, token, err := o.token.make(ctx, c, management, "import-command", managementv3.AgentsPurpose)
	if err != nil {
		return "", err
	}
	template, err := awaitFor(ctx, o.wait, func() (string, error) { return o.template(ctx, c, crt) })
	if err != nil {
		if gone := c.Delete(context.WithoutCancel(ctx), crt); client.IgnoreNotFound(gone) != nil {
			err = errors.Join(err, fmt.Errorf("deleting ClusterRegistrationToken %s: %w", client.ObjectKeyFromObject(crt), gone))
		}
		return "", err
	}
	return strings.ReplaceAll(template, managementv3.TokenPlaceholder, token), nil
}

// template is the command that the hub shows for a token.
func (o *importOptions) template(ctx context.Context, c client.Reader, crt *managementv3.ClusterRegistrationToken) (string, error) {
	key := client.ObjectKeyFromObject(crt)
	if err := c.Get(ctx, key, crt); err != nil {
		return "", explain(fmt.Errorf("reading ClusterRegistrationToken %s: %w", key, err))
	}
	template := crt.Status.VerifiedCommand
	switch {
	case o.insecure:
		template = crt.Status.InsecureCommand
	case o.publicCA || template == "":
		template = crt.Status.Command
	}
	if template != "" {
		return template, nil
	}
	reason := ""
	if ready := conditions.Get(crt, managementv3.ReadyCondition); ready != nil && ready.Message != "" {
		reason = ": " + ready.Message
	}
	return "", fmt.Errorf("the command of ClusterRegistrationToken %s is %w%s", key, errNotYet, reason)
}
