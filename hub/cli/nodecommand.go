package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/packaging/install"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// nodeOptions are the flags of "hub node-command".
type nodeOptions struct {
	registrationOptions
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
		Args: oneCluster,
		RunE: opts.printCommand(opts.checkRoles, opts.run),
	}
	opts.addFlags(cmd.Flags())
	return cmd
}

func (o *nodeOptions) addFlags(flags *pflag.FlagSet) {
	o.registrationOptions.addFlags(flags, 24*time.Hour, "script", "the machine")
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
	flags.BoolVar(&o.controlPlane, "control-plane", false, "same as --controlplane")
	_ = flags.MarkHidden("control-plane")
}

func (o *nodeOptions) checkRoles() error {
	if !o.etcd && !o.controlPlane && !o.worker {
		return errors.New("a machine needs a role: --etcd, --controlplane, --worker, or several of them")
	}
	return nil
}

// run returns the command that adds a machine to the cluster.
func (o *nodeOptions) run(ctx context.Context, c client.Client, cluster client.ObjectKey) (string, error) {
	management, err := o.managementCluster(ctx, c, cluster)
	if err != nil {
		return "", err
	}
	if err := checkTakesMachines(ctx, c, cluster); err != nil {
		return "", err
	}
	command, err := o.create(ctx, c, management, registrationCommand{
		name: "node-command", purpose: managementv3.MachinesPurpose, roles: o.roles(),
		templates: func(status *managementv3.ClusterRegistrationTokenStatus) registrationTemplates {
			return registrationTemplates{
				verified: status.VerifiedNodeCommand, insecure: status.InsecureNodeCommand, publicCA: status.NodeCommand,
			}
		},
	})
	if err != nil {
		return "", err
	}
	return strings.Join(append([]string{command}, o.scriptArgs()...), " "), nil
}

// checkTakesMachines refuses an imported Cluster, which may be one whose author left spec.rkeConfig out: no machine could register.
func checkTakesMachines(ctx context.Context, c client.Reader, key client.ObjectKey) error {
	cluster := &provisioningv1.Cluster{}
	if err := c.Get(ctx, key, cluster); err != nil {
		return explain(fmt.Errorf("reading Cluster %s: %w", key, err))
	}
	if cluster.Spec.RKEConfig != nil {
		return nil
	}
	return fmt.Errorf("the Cluster %s has no spec.rkeConfig: it was created elsewhere, and \"hub import-command\" prints the command that "+
		"imports it. For a cluster that the hub creates, delete this Cluster and create it with spec.rkeConfig, which may be {}", key)
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

// scriptArgs are the arguments of the install script that the flags stand for.
func (o *nodeOptions) scriptArgs() []string {
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
