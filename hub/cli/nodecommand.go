package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/packaging/install"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// nodeOptions are the flags of "hub node-command".
type nodeOptions struct {
	connection
	token    registrationOptions
	wait     time.Duration
	insecure bool
	publicCA bool

	etcd, controlPlane, worker         bool
	nodeName, address, internalAddress string
	labels, taints                     []string
}

func newNodeCommand() *cobra.Command {
	opts := &nodeOptions{}
	cmd := &cobra.Command{
		Use:   "node-command <namespace>/<cluster>",
		Short: "Print the command that adds a node",
		Long: `Print the command that adds a machine to a cluster. Run it on that machine, as root or with sudo.

The command contains a new registration token. Until it expires, anybody who has the token can add machines to the cluster, with the roles
in the command and no others. The token is stored nowhere else. To revoke it, delete its ClusterRegistrationToken in the namespace of the
management Cluster.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("node-command needs one argument: <namespace>/<cluster>")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := opts.check(args[0])
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

func (o *nodeOptions) addFlags(flags *pflag.FlagSet) {
	o.connection.addFlags(flags)
	o.token.addFlags(flags, 24*time.Hour)
	flags.DurationVar(&o.wait, "wait", 30*time.Second, "how long to wait for the hub to make the command")
	flags.BoolVar(&o.insecure, "insecure", false, "a shorter command that downloads the script without checking whom from")
	flags.BoolVar(&o.publicCA, "public-ca", false,
		"the machine trusts the certificate at the hub's URL already, for instance that of a load balancer")

	flags.BoolVar(&o.etcd, "etcd", false, "the machine is to run etcd")
	flags.BoolVar(&o.controlPlane, "controlplane", false, "the machine is to run the control plane")
	flags.BoolVar(&o.worker, "worker", false, "the machine is to run workloads")
	flags.StringVar(&o.nodeName, "node-name", "", "name of the node (default: the machine's host name)")
	flags.StringVar(&o.address, "address", "", "address of the machine (default: the one by which it reaches the hub)")
	flags.StringVar(&o.internalAddress, "internal-address", "", "address of the machine among the cluster's nodes")
	flags.StringArrayVar(&o.labels, "label", nil, "label of the node, key=value (repeatable)")
	flags.StringArrayVar(&o.taints, "taint", nil, "taint of the node, key=value:effect (repeatable)")
	flags.StringArrayVar(&o.taints, "taints", nil, "same as --taint")
	_ = flags.MarkHidden("taints")
}

func (o *nodeOptions) check(cluster string) (client.ObjectKey, error) {
	key, err := clusterKey(cluster)
	if err == nil && !o.etcd && !o.controlPlane && !o.worker {
		err = errors.New("a machine needs a role: --etcd, --controlplane, --worker, or several of them")
	}
	if err == nil {
		err = o.token.check()
	}
	return key, err
}

// run makes a token and returns the command with it, as soon as the hub has made that. A token that nobody is told of does not stay.
func (o *nodeOptions) run(ctx context.Context, c client.Client, cluster client.ObjectKey) (string, error) {
	management, err := awaitFor(ctx, o.wait, func() (string, error) { return managementCluster(ctx, c, cluster) })
	if err != nil {
		return "", err
	}
	crt, token, err := o.token.make(ctx, c, management, "node-command", managementv3.MachinesPurpose, o.roles()...)
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
	words := append([]string{strings.ReplaceAll(template, managementv3.TokenPlaceholder, token)}, o.words()...)
	return strings.Join(words, " "), nil
}

// managementCluster names the management Cluster of a Cluster.
func managementCluster(ctx context.Context, c client.Reader, key client.ObjectKey) (string, error) {
	cluster := &provisioningv1.Cluster{}
	if err := c.Get(ctx, key, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			return "", fmt.Errorf("there is no Cluster %s", key)
		}
		return "", explain(fmt.Errorf("reading Cluster %s: %w", key, err))
	}
	// The annotation is written before there is a namespace for the token, the status afterwards.
	name := cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
	if name == "" || cluster.Status.ClusterName != name {
		return "", fmt.Errorf("the management Cluster of Cluster %s is %w; its conditions say why", key, errNotYet)
	}
	return name, checkOwned(ctx, c, key, name)
}

// template is the command that the hub shows for a token.
func (o *nodeOptions) template(ctx context.Context, c client.Reader, crt *managementv3.ClusterRegistrationToken) (string, error) {
	key := client.ObjectKeyFromObject(crt)
	if err := c.Get(ctx, key, crt); err != nil {
		return "", explain(fmt.Errorf("reading ClusterRegistrationToken %s: %w", key, err))
	}
	template := crt.Status.VerifiedNodeCommand
	switch {
	case o.insecure:
		template = crt.Status.InsecureNodeCommand
	case o.publicCA || template == "":
		template = crt.Status.NodeCommand
	}
	if template == "" {
		reason := ""
		if ready := conditions.Get(crt, managementv3.ReadyCondition); ready != nil && ready.Message != "" {
			reason = ": " + ready.Message
		}
		return "", fmt.Errorf("the command of ClusterRegistrationToken %s is %w%s", key, errNotYet, reason)
	}
	return template, nil
}

// roles are what machines may register with by the command.
func (o *nodeOptions) roles() []managementv3.MachineRole {
	var out []managementv3.MachineRole
	for _, role := range []struct {
		set  bool
		role managementv3.MachineRole
	}{{o.etcd, managementv3.EtcdRole}, {o.controlPlane, managementv3.ControlPlaneRole}, {o.worker, managementv3.WorkerRole}} {
		if role.set {
			out = append(out, role.role)
		}
	}
	return out
}

// words are the arguments of the install script that the flags stand for.
func (o *nodeOptions) words() []string {
	var out []string
	flag := func(set bool, name string) {
		if set {
			out = append(out, name)
		}
	}
	value := func(name string, values ...string) {
		for _, v := range values {
			if v != "" {
				out = append(out, name, install.Quote(v))
			}
		}
	}
	flag(o.etcd, "--etcd")
	flag(o.controlPlane, "--controlplane")
	flag(o.worker, "--worker")
	value("--node-name", o.nodeName)
	value("--address", o.address)
	value("--internal-address", o.internalAddress)
	value("--label", o.labels...)
	value("--taint", o.taints...)
	return out
}
