package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/access/machinessh"
	"github.com/drover-dev/drover/hub/server/settings"
)

// machineAccess is how commands ask the hub for the way into a machine.
type machineAccess struct {
	scoped
	systemNamespace string
}

func (o *machineAccess) addFlags(flags *pflag.FlagSet) {
	o.scoped.addFlags(flags)
	flags.StringVar(&o.systemNamespace, "system-namespace", settings.DefaultSystemNamespace, "the hub's --system-namespace")
}

// gateway returns a configuration for the gateway of the hub, with the credential of the kubeconfig.
func (o *machineAccess) gateway(ctx context.Context) (*rest.Config, error) {
	c, err := o.client()
	if err != nil {
		return nil, err
	}
	hub, _, err := readSettings(ctx, c, o.systemNamespace)
	if err != nil {
		return nil, err
	}
	config, _, err := credential{kubeconfig: o.path()}.load()
	if err != nil {
		return nil, err
	}
	return gatewayConfig(config, hub.ServerURL, hub.CACerts), nil
}

// get asks the hub how to log in to a machine.
func (o *machineAccess) get(ctx context.Context, argument string) (*machinessh.Access, error) {
	key, err := o.key(argument, "machine")
	if err != nil {
		return nil, err
	}
	config, err := o.gateway(ctx)
	if err != nil {
		return nil, err
	}
	c, err := gatewayClient(config)
	if err != nil {
		return nil, err
	}
	raw, err := answerOf(c.Get().AbsPath(machinessh.Path(key)).Do(ctx))
	if err != nil {
		return nil, fmt.Errorf("asking the hub at %s for the SSH key of machine %s: %w", config.Host, key, err)
	}
	access := &machinessh.Access{}
	if err := json.Unmarshal(raw, access); err != nil {
		return nil, fmt.Errorf("reading the answer of the hub at %s: %w", config.Host, err)
	}
	return access, nil
}

func newMachineSSHKey() *cobra.Command {
	o := &machineAccess{}
	var file string
	cmd := &cobra.Command{
		Use:     "ssh-key <namespace>/<machine>",
		Short:   "Print the private SSH key of a machine",
		Long:    "Print the private SSH key that the node driver has saved of a machine. An Event of the Machine (SSHKeyRead) tells who got it.",
		Example: "  hub machine ssh-key fleet-default/demo-workers-abcde-fghij --file key && ssh -i key root@192.0.2.10",
		Args:    oneMachine,
		RunE: func(cmd *cobra.Command, args []string) error {
			access, err := o.get(cmd.Context(), args[0])
			if err != nil {
				return explain(err)
			}
			if file == "" {
				_, err = cmd.OutOrStdout().Write(access.PrivateKey)
				return err
			}
			return writeNew(file, access.PrivateKey)
		},
	}
	o.addFlags(cmd.Flags())
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

func newMachineSSH() *cobra.Command {
	o := &machineAccess{}
	var direct bool
	cmd := &cobra.Command{
		Use:   "ssh <namespace>/<machine> [-- <command>...]",
		Short: "Log in to a machine with SSH, or run a command on it",
		Long: `Log in to a machine with SSH, or run a command on it. This runs the ssh program of OpenSSH with your own configuration, and
gives it the key that the node driver has saved, without writing it to a file. The exit code is that of ssh.

If the agent of the machine has a tunnel to the hub, the connection goes through it, for machines that accept no connections. Its
configuration must allow that: tunnel.enabled, and 127.0.0.1:22 in tunnel.allow. Otherwise, and with --direct, ssh connects to the address
of the machine, for which it waits 20 seconds.

The host key is accepted when it is first seen, and kept per machine in a file of your own.

Events of the Machine (SSHKeyRead, SSHConnection) tell who did this.`,
		Example: "  hub machine ssh fleet-default/demo-workers-abcde-fghij\n" +
			"  hub machine ssh fleet-default/demo-workers-abcde-fghij -- journalctl -u rke2-agent",
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) == 0 || at >= 0 && at != 1 || at < 0 && len(args) > 1 {
				return errors.New(commandName(cmd) + " needs one argument, <namespace>/<machine>; a command follows after --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			access, err := o.get(cmd.Context(), args[0])
			if err != nil {
				return explain(err)
			}
			proxy := ""
			if access.Tunnel && !direct {
				proxy = o.proxyCommand(args[0])
			}
			return runSSH(cmd, access, proxy, args[1:])
		},
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&direct, "direct", false, "connect to the address of the machine, even if it has a tunnel to the hub")
	return cmd
}

// proxyCommand is the command by which ssh connects through the hub.
func (o *machineAccess) proxyCommand(argument string) string {
	args := []string{programPath(), "machine", "ssh-proxy", argument, "--data-dir", o.dataDir, "--system-namespace", o.systemNamespace}
	if o.kubeconfig != "" {
		args = append(args, "--kubeconfig", o.kubeconfig)
	}
	if o.namespace != "" {
		args = append(args, "--namespace", o.namespace)
	}
	for i, arg := range args {
		args[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	// ssh replaces what follows a percent sign.
	return strings.ReplaceAll(strings.Join(args, " "), "%", "%%")
}

const (
	// sshConnectTimeout is how long ssh waits for a machine, instead of the two minutes of TCP.
	sshConnectTimeout = 20 * time.Second
	// sshAliveInterval is after how long without data ssh asks a machine behind the hub for an answer, and sshAliveCount how many may be
	// missing before ssh ends. Load balancers in front of a hub end connections that are idle, many of them after a minute, and ssh would
	// not notice.
	sshAliveInterval, sshAliveCount = 15 * time.Second, 8
	// sshFailed is the exit code of ssh for its own errors.
	sshFailed = 255
)

// runSSH runs ssh until it ends.
func runSSH(cmd *cobra.Command, access *machinessh.Access, proxy string, command []string) error {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return fmt.Errorf("this command needs the program ssh of OpenSSH: %w", err)
	}
	if proxy == "" && access.Address == "" {
		return errors.New("the node driver has saved no address of the machine, and its agent has no tunnel to the hub")
	}
	agent, err := newSSHAgent(access.PrivateKey)
	if err != nil {
		return err
	}
	defer agent.close()
	options := sshOptions(access, agent.socket, proxy)
	if dir, err := os.UserCacheDir(); err == nil && os.MkdirAll(filepath.Join(dir, "drover"), 0o700) == nil {
		options = append(options, "UserKnownHostsFile="+quoted(filepath.Join(dir, "drover", "known_hosts")))
	}
	address := access.Address
	if proxy != "" {
		address = access.UID // a name for messages only
	}
	args := []string{"-l", access.User, "-p", strconv.Itoa(access.Port)}
	for _, option := range options {
		args = append(args, "-o", option)
	}
	args = append(append(args, "--", address), command...)
	// The terminal sends its signals to ssh, too; what this command does about them is to wait for its end.
	ssh := exec.Command(program, args...) //nolint:noctx // it ends itself
	ssh.Stdin, ssh.Stdout, ssh.Stderr = os.Stdin, cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := ssh.Start(); err != nil {
		return fmt.Errorf("running %s: %w", program, err)
	}
	defer context.AfterFunc(cmd.Context(), func() { _ = ssh.Process.Signal(os.Interrupt) })() // it may have ended
	err = ssh.Wait()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		if failed.ExitCode() == sshFailed && !access.Tunnel {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "ssh ended with %d, as it does when it cannot connect. The agent of the machine has no tunnel to "+
				"the hub:\nto connect through the hub, set tunnel.enabled: true and tunnel.allow: [\"127.0.0.1:%d\"] in the configuration of the "+
				"agent\n", sshFailed, access.Port) // the exit code says that it failed
		}
		return exitCode(max(failed.ExitCode(), 1))
	}
	return err
}

// sshOptions are the options that do not depend on the user.
func sshOptions(access *machinessh.Access, agentSocket, proxy string) []string {
	options := []string{
		"IdentityAgent=" + quoted(agentSocket), "IdentityFile=none", "StrictHostKeyChecking=accept-new", "CheckHostIP=no",
		"HostKeyAlias=" + access.UID, fmt.Sprintf("ConnectTimeout=%d", int(sshConnectTimeout.Seconds())),
	}
	if proxy != "" {
		options = append(options, "ProxyCommand="+proxy, fmt.Sprintf("ServerAliveInterval=%d", int(sshAliveInterval.Seconds())),
			fmt.Sprintf("ServerAliveCountMax=%d", sshAliveCount))
	}
	return options
}

// quoted is a file in an option of ssh.
func quoted(path string) string { return `"` + strings.ReplaceAll(path, "%", "%%") + `"` }

// newMachineSSHProxy connects standard input and output with the SSH server of a machine. "hub machine ssh" has ssh run it.
func newMachineSSHProxy() *cobra.Command {
	o := &machineAccess{}
	cmd := &cobra.Command{
		Use:    "ssh-proxy <namespace>/<machine>",
		Short:  "Connect standard input and output with the SSH server of a machine",
		Hidden: true,
		Args:   oneMachine,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := o.key(args[0], "machine")
			if err != nil {
				return err
			}
			config, err := o.gateway(cmd.Context())
			if err != nil {
				return explain(err)
			}
			conn, err := connectSSH(cmd.Context(), config, key)
			if err != nil {
				return err
			}
			defer conn.Close()
			go func() {
				_, _ = io.Copy(conn, os.Stdin) // the other direction ends the connection
				_ = conn.Close()
			}()
			_, err = io.Copy(cmd.OutOrStdout(), conn)
			return err
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}

// connectSSH asks the hub for a connection to the SSH server of a machine.
func connectSSH(ctx context.Context, config *rest.Config, key client.ObjectKey) (io.ReadWriteCloser, error) {
	config.NextProtos = []string{"http/1.1"} // HTTP/2 has no upgrades
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("reaching the hub at %s: %w", config.Host, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+machinessh.Path(key), nil)
	if err != nil {
		return nil, fmt.Errorf("reaching the hub at %s: %w", config.Host, err)
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", machinessh.Protocol)
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("reaching the hub at %s: %w", config.Host, err)
	}
	if conn, ok := answer.Body.(io.ReadWriteCloser); ok && answer.StatusCode == http.StatusSwitchingProtocols {
		return conn, nil
	}
	defer answer.Body.Close()
	raw, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	status := metav1.Status{}
	if json.Unmarshal(raw, &status) != nil || status.Message == "" {
		status.Message = string(bytes.TrimSpace(raw[:min(len(raw), 500)]))
	}
	return nil, fmt.Errorf("connecting to machine %s through the hub at %s: %s: %s", key, config.Host, answer.Status, status.Message)
}
