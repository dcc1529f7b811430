package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
)

func newMachine() *cobra.Command {
	return group(&cobra.Command{Use: "machine", Short: "Inspect machines of node drivers, and log in to them",
		Long: `Inspect machines of node drivers, and log in to them.

All of these commands need the right to get the machine state Secret (<infrastructure machine>-machine-state). "logs" also needs to get the
Machine, "ssh" and "ssh-key" the ConfigMap drover-settings in the hub's namespace.`},
		newMachineLogs(), newMachineSSH(), newMachineSSHKey(), newMachineSSHProxy())
}

func newMachineLogs() *cobra.Command {
	var where scoped
	cmd := &cobra.Command{
		Use:   "logs <namespace>/<machine>",
		Short: "Print the last output of the node driver",
		Long: "Print the end of what the node driver has written when it created or removed the machine last: at most 32 KiB, without " +
			"secrets.",
		Example: "  hub machine logs fleet-default/demo-workers-abcde-fghij",
		Args:    oneMachine,
		RunE: func(cmd *cobra.Command, args []string) error {
			secret, _, err := machineState(cmd.Context(), &where, args[0])
			if err != nil {
				return explain(err)
			}
			for line := range strings.Lines(string(secret.Data[nodedriver.LogKey])) {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), printable(strings.TrimSuffix(line, "\n"))); err != nil {
					return err
				}
			}
			return nil
		},
	}
	where.addFlags(cmd.Flags())
	return cmd
}

func oneMachine(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New(commandName(cmd) + " needs one argument: <namespace>/<machine>")
	}
	return nil
}

// machineState reads the machine state Secret of a Machine, and the name of its infrastructure machine.
func machineState(ctx context.Context, where *scoped, argument string) (*corev1.Secret, string, error) {
	key, err := where.key(argument, "machine")
	if err != nil {
		return nil, "", err
	}
	c, err := where.client()
	if err != nil {
		return nil, "", err
	}
	machine := &clusterv1.Machine{}
	if err := c.Get(ctx, key, machine); err != nil {
		return nil, "", fmt.Errorf("reading Machine %s: %w", key, err)
	}
	infra := machine.Spec.InfrastructureRef
	if infra.APIGroup != schema.MachineGroup {
		return nil, "", fmt.Errorf("machine %s is a %s.%s, and not of a node driver", key, infra.Kind, infra.APIGroup)
	}
	secret := &corev1.Secret{}
	name := rkev1.MachineStateSecretName(infra.Name)
	if err := c.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: name}, secret); err != nil {
		return nil, "", fmt.Errorf("reading Secret %s of machine %s: %w", name, key, err)
	}
	if secret.Type != rkev1.MachineStateSecretType {
		return nil, "", fmt.Errorf("the type of Secret %s is not %s", name, rkev1.MachineStateSecretType)
	}
	return secret, infra.Name, nil
}
