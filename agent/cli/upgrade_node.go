package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/packaging/install"
)

const (
	// envNodeName is the name of the node of a Job of the system-upgrade-controller.
	envNodeName = "SYSTEM_UPGRADE_NODE_NAME"
	// envUninstall removes the agent instead, if it is "true".
	envUninstall = "UNINSTALL"
	envRoleNone  = "CATTLE_ROLE_NONE"
	envNodeSet   = "CATTLE_NODE_NAME"
)

// nodePath is the PATH on the node. That of the container says nothing about it. Tests put a systemctl of their own before it.
var nodePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin"

// passed are the variables beside CATTLE_* that the install script reads. Everything else in the environment is about the container.
var passed = []string{"STRICT_VERIFY", "DEBUG", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"}

func newUpgradeNode() *cobra.Command {
	var root, kubeconfig string
	cmd := &cobra.Command{
		Use:   "upgrade-node",
		Short: "Install this agent on a Pod's node",
		Long: `Install this agent on the node of the Pod, whose root directory is mounted in the container. Jobs of the system-upgrade-controller
run this command: it is what the container image does by default, and the image has no shell.

The command runs the embedded install script on the node with this binary as the agent. The environment of the Job is that of the install
script: without CATTLE_TOKEN the node keeps its connection; an unset proxy keeps that of the node. The roles of a node that registers are
those of the labels node-role.kubernetes.io/* of its Node, for which the service account needs the right to get nodes; CATTLE_ROLE_* are for
a Node without them. CATTLE_ROLE_NONE=true does not read the Node. UNINSTALL=true removes the agent.

The exit code is that of the script.`,
		Example: "  SYSTEM_UPGRADE_NODE_NAME=n1 system-agent upgrade-node --host-root /host",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := requireRoot("upgrade-node installs a service on the node"); err != nil {
				return err
			}
			if info, err := os.Stat(filepath.Join(root, "bin/sh")); err != nil || !info.Mode().IsRegular() {
				return fmt.Errorf("--host-root: %s/bin/sh does not exist: mount the root directory of the node at %s", root, root)
			}
			if os.Getenv(envUninstall) == "true" {
				return runOnNode(cmd.Context(), root, install.UninstallScript(), nodeEnvironment(os.Environ()), cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			env, err := registrationEnvironment(cmd.Context(), nodeEnvironment(os.Environ()), kubeconfig)
			if err != nil {
				return err
			}
			return upgradeNode(cmd.Context(), root, env, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&root, "host-root", "/host", "directory at which the root directory of the node is mounted")
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster (default: service account of the Pod)")
	return cmd
}

// nodeEnvironment returns what the install script may read of the container's environment.
func nodeEnvironment(environment []string) []string {
	env := []string{"PATH=" + nodePath, "HOME=/root"}
	for _, variable := range environment {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "CATTLE_") || slices.Contains(passed, name) {
			env = append(env, variable)
		}
	}
	return env
}

// registrationEnvironment adds the name of the node, and its roles unless the hub knows them.
func registrationEnvironment(ctx context.Context, env []string, kubeconfig string) ([]string, error) {
	node := os.Getenv(envNodeName)
	if node == "" {
		return nil, errors.New(envNodeName + " must be the name of the node; the system-upgrade-controller sets it")
	}
	env = append(env, envNodeSet+"="+node)
	if os.Getenv(envRoleNone) == "true" {
		return env, nil
	}
	cluster, err := clusterConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster for the roles of Node %s: %w", node, err)
	}
	labels, err := nodeLabels(ctx, cluster, node)
	if err != nil {
		return nil, fmt.Errorf("reading the roles of Node %s: %w", node, err)
	}
	roles := roleVariables(labels)
	if len(roles) == 0 {
		return env, nil
	}
	env = slices.DeleteFunc(env, func(variable string) bool { return strings.HasPrefix(variable, "CATTLE_ROLE_") })
	return append(env, roles...), nil
}

// upgradeNode runs the install script on the node with this program as the agent.
func upgradeNode(ctx context.Context, root string, env []string, stdout, stderr io.Writer) (err error) {
	script, err := install.Script()
	if err != nil {
		return err
	}
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the path of this binary: %w", err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading this binary: %w", err)
	}
	machine := host.Local{}
	// Only root of the node writes in its /run, so that no other user can replace the files. The script copies them before it runs them.
	directory := "/run/rancher-system-agent-upgrade-" + rand.Text()
	local := filepath.Join(root, directory)
	if err := machine.MkdirAll(local, fs.WithMode(0o700)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, machine.RemoveAll(local)) }()
	if err := machine.WriteFile(filepath.Join(local, "system-agent"), program, fs.WithMode(0o700)); err != nil {
		return err
	}
	if err := machine.WriteFile(filepath.Join(local, "uninstall.sh"), install.UninstallScript(), fs.WithMode(0o700)); err != nil {
		return err
	}
	env = append(env, "CATTLE_AGENT_BINARY_LOCAL=true", "CATTLE_AGENT_BINARY_LOCAL_LOCATION="+directory+"/system-agent",
		"CATTLE_AGENT_UNINSTALL_LOCAL=true", "CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION="+directory+"/uninstall.sh")
	return runOnNode(ctx, root, script, env, stdout, stderr)
}

// runOnNode runs a shell script with the node's shell below its root directory. A signal that ends the Pod ends the script, which removes
// what it has not finished.
func runOnNode(ctx context.Context, root string, script []byte, env []string, stdout, stderr io.Writer) error {
	command := run.Command{Root: root, Path: "/bin/sh", Args: []string{"-s"}, Dir: "/", Stdin: script, Env: env}
	code, err := run.Attach(ctx, command, stdout, stderr)
	if err != nil {
		return err
	}
	if code != 0 {
		return exitCode(max(code, exitError))
	}
	return nil
}
