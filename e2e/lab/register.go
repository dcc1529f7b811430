package lab

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
)

// AllRoles make a machine a whole cluster.
var AllRoles = []string{"--etcd", "--controlplane", "--worker"}

// roleOfFlag are the roles of a registration token by the flags of the command.
var roleOfFlag = map[string]managementv3.MachineRole{
	"--etcd": managementv3.EtcdRole, "--controlplane": managementv3.ControlPlaneRole, "--worker": managementv3.WorkerRole,
}

// NodeCommand asks the hub's command line for the command that makes a machine a node, once the hub has it.
func (l *Lab) NodeCommand(ctx context.Context, cluster client.ObjectKey, roles ...string) (string, error) {
	var command string
	err := l.WaitFor(ctx, "the hub has a registration command for "+cluster.String(), 2*time.Minute, func(ctx context.Context) (bool, string) {
		argv := append([]string{l.bin("hub"), "node-command", cluster.String(), "--data-dir", l.dataDir()}, roles...)
		var out, errs strings.Builder
		cmd := l.Command(ctx, argv...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			return false, fmt.Sprintf("%v: %s", err, strings.TrimSpace(errs.String()))
		}
		command = strings.TrimSpace(out.String())
		return command != "", "it printed nothing"
	})
	return command, err
}

// TokenCommand makes a registration token as somebody does who has kubectl only: the hub is told its hash. The command that the status of
// its ClusterRegistrationToken shows is returned with the token in it. The token is good for the roles only.
func (l *Lab) TokenCommand(ctx context.Context, hub client.Client, cluster client.ObjectKey, roles ...string) (command, token string,
	err error) {
	if token, err = tokens.NewRegistrationToken(); err != nil {
		return "", "", err
	}
	crt := &managementv3.ClusterRegistrationToken{}
	crt.GenerateName = "by-hand-"
	crt.Spec.Purpose = managementv3.MachinesPurpose
	for _, role := range roles {
		crt.Spec.Roles = append(crt.Spec.Roles, roleOfFlag[role])
	}
	crt.Spec.Made = &managementv3.MadeToken{ID: tokens.RegistrationID(token), Hash: tokens.Hash(token)}
	err = l.WaitFor(ctx, "a ClusterRegistrationToken of "+cluster.String()+" has a command", 2*time.Minute,
		func(ctx context.Context) (bool, string) {
			c := &provisioningv1.Cluster{}
			if err := hub.Get(ctx, cluster, c); err != nil {
				return false, err.Error()
			}
			if c.Status.ClusterName == "" {
				return false, ConditionMessage(c.Status.Conditions, provisioningv1.CreatedCondition)
			}
			if crt.UID == "" {
				crt.Namespace, crt.Spec.ClusterName = c.Status.ClusterName, c.Status.ClusterName
				if err := hub.Create(ctx, crt); err != nil {
					return false, err.Error()
				}
			}
			if err := hub.Get(ctx, client.ObjectKeyFromObject(crt), crt); err != nil {
				return false, err.Error()
			}
			command = strings.ReplaceAll(crt.Status.InsecureNodeCommand, managementv3.TokenPlaceholder, token) + " " + strings.Join(roles, " ")
			return crt.Status.InsecureNodeCommand != "", "its status has no command yet"
		})
	return command, token, err
}

// Register runs a registration command on a host, as a user who pastes it into a shell there.
func (l *Lab) Register(ctx context.Context, host *hosts.Host, command string) error {
	lines := &reporter{report: l.report}
	res, err := host.Script(ctx, command+"\n", lines)
	if err != nil {
		return fmt.Errorf("registering %s: %w", host.Name, err)
	}
	if res.ExitCode != 0 {
		return fmt.Errorf("registering %s: the command ended with %d: %s", host.Name, res.ExitCode, lines.tail())
	}
	return nil
}
