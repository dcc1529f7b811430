package lab

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// AllRoles make a machine a whole cluster.
var AllRoles = []string{"--etcd", "--controlplane", "--worker"}

// NodeCommand asks the hub's command line for the command that makes a machine a node, once the hub has it.
func (l *Lab) NodeCommand(ctx context.Context, cluster client.ObjectKey, roles ...string) (string, error) {
	var command string
	err := l.WaitFor(ctx, "the hub has a registration command for "+cluster.String(), time.Minute, func(ctx context.Context) (bool, string) {
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

// TokenCommand fills the command that the status of the cluster's ClusterRegistrationToken shows with the token of its Secret.
func (l *Lab) TokenCommand(ctx context.Context, hub client.Client, cluster client.ObjectKey, roles ...string) (command, token string, err error) {
	err = l.WaitFor(ctx, "the ClusterRegistrationToken of "+cluster.String()+" has a command", time.Minute, func(ctx context.Context) (bool, string) {
		c := &provisioningv1.Cluster{}
		if err := hub.Get(ctx, cluster, c); err != nil {
			return false, err.Error()
		}
		if c.Status.ClusterName == "" {
			return false, ConditionMessage(c.Status.Conditions, provisioningv1.CreatedCondition)
		}
		crt := &managementv3.ClusterRegistrationToken{}
		if err := hub.Get(ctx, client.ObjectKey{Namespace: c.Status.ClusterName, Name: managementv3.DefaultTokenName}, crt); err != nil {
			return false, err.Error()
		}
		if crt.Status.InsecureNodeCommand == "" || crt.Status.TokenSecretName == "" {
			return false, "its status has no command yet"
		}
		secret := &corev1.Secret{}
		if err := hub.Get(ctx, client.ObjectKey{Namespace: crt.Namespace, Name: crt.Status.TokenSecretName}, secret); err != nil {
			return false, err.Error()
		}
		token = string(secret.Data[managementv3.TokenKey])
		command = strings.ReplaceAll(crt.Status.InsecureNodeCommand, managementv3.TokenPlaceholder, token) + " " + strings.Join(roles, " ")
		return token != "", "its Secret has no token"
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
