package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/packaging/install"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// nodeOptions are the flags of "hub node-command".
type nodeOptions struct {
	connection
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
		Short: "Print the command that makes a machine a node of a cluster",
		Long: `Print the command that makes a machine a node of a cluster. It is run on that machine, as root or by somebody who may use sudo.

The command holds the cluster's registration token: whoever has it can add machines to the cluster.`,
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
			command, err := opts.await(cmd.Context(), c, key)
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
	flags.DurationVar(&o.wait, "wait", 30*time.Second, "how long to wait for the hub to make the command")
	flags.BoolVar(&o.insecure, "insecure", false, "a shorter command that downloads the script without checking whom from")
	flags.BoolVar(&o.publicCA, "public-ca", false, "the machine trusts the certificate at the hub's URL already, for instance that of a load balancer")

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
	return key, err
}

// errNotYet marks what the hub will have done in a moment.
var errNotYet = errors.New("not there yet")

// await returns the command as soon as the hub has made it.
func (o *nodeOptions) await(ctx context.Context, c client.Reader, cluster client.ObjectKey) (string, error) {
	deadline := time.Now().Add(o.wait)
	for {
		command, err := o.command(ctx, c, cluster)
		if !errors.Is(err, errNotYet) || time.Now().After(deadline) {
			return command, err
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// command completes the command of the cluster's registration token with the token and with what the flags say.
func (o *nodeOptions) command(ctx context.Context, c client.Reader, key client.ObjectKey) (string, error) {
	cluster := &provisioningv1.Cluster{}
	if err := c.Get(ctx, key, cluster); err != nil {
		if apierrors.IsNotFound(err) {
			return "", fmt.Errorf("there is no Cluster %s", key)
		}
		return "", fmt.Errorf("reading Cluster %s: %w", key, err)
	}
	management := cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
	if management == "" {
		return "", fmt.Errorf("the registration token of Cluster %s is %w; its conditions say why", key, errNotYet)
	}

	token := &managementv3.ClusterRegistrationToken{}
	tokenKey := client.ObjectKey{Namespace: management, Name: managementv3.DefaultTokenName}
	if err := c.Get(ctx, tokenKey, token); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading ClusterRegistrationToken %s: %w", tokenKey, err)
	}
	template := token.Status.VerifiedNodeCommand
	switch {
	case o.insecure:
		template = token.Status.InsecureNodeCommand
	case o.publicCA || template == "":
		template = token.Status.NodeCommand
	}
	if template == "" || token.Status.TokenSecretName == "" {
		return "", fmt.Errorf("the command of ClusterRegistrationToken %s is %w", tokenKey, errNotYet)
	}
	secret := &corev1.Secret{}
	secretKey := client.ObjectKey{Namespace: management, Name: token.Status.TokenSecretName}
	if err := c.Get(ctx, secretKey, secret); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading Secret %s: %w", secretKey, err)
	}
	value := string(secret.Data[managementv3.TokenKey])
	if value == "" {
		return "", fmt.Errorf("the token in Secret %s is %w", secretKey, errNotYet)
	}
	words := append([]string{strings.ReplaceAll(template, managementv3.TokenPlaceholder, value)}, o.words()...)
	return strings.Join(words, " "), nil
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
