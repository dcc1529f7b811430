package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	return group(&cobra.Command{Use: "machine", Short: "Inspect machines of node drivers", Long: `Inspect machines of node drivers.

Both commands read the machine state Secret (<machine>-machine-state) with your own rights: you need the right to get it.`},
		newMachineLogs(), newMachineSSHKey())
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

func newMachineSSHKey() *cobra.Command {
	var where scoped
	var file string
	cmd := &cobra.Command{
		Use:     "ssh-key <namespace>/<machine>",
		Short:   "Print the private SSH key of a machine",
		Example: "  hub machine ssh-key fleet-default/demo-workers-abcde-fghij --file key && ssh -i key root@192.0.2.10",
		Args:    oneMachine,
		RunE: func(cmd *cobra.Command, args []string) error {
			secret, infra, err := machineState(cmd.Context(), &where, args[0])
			if err != nil {
				return explain(err)
			}
			state, err := nodedriver.Decode(nodedriver.InstanceName(infra), secret.Data[nodedriver.StateKey])
			if err != nil {
				return fmt.Errorf("reading Secret %s: %w", secret.Name, err)
			}
			key := state.SSHKey()
			if key == nil {
				return fmt.Errorf("the node driver has saved no SSH key of machine %s", args[0])
			}
			if file == "" {
				_, err = cmd.OutOrStdout().Write(key)
				return err
			}
			return writeNew(file, key)
		},
	}
	where.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&file, "file", "", "new file that the key is written to, with mode 0600 (default: standard output)")
	return cmd
}

// writeNew writes a file that does not exist.
func writeNew(name string, content []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("--file: %w", err)
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
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
