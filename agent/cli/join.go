package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/packaging/install"
)

// joinOptions are the flags of join.
type joinOptions struct {
	server, caChecksum        string
	token, tokenFile          string
	etcd, controlPlane        bool
	worker, allRoles, noRoles bool
	nodeName, address         string
	internalAddress           string
	labels, taints            []string
}

func newJoin() *cobra.Command {
	var options joinOptions
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Install this agent as a service and register the machine with a hub",
		Long: `Install this agent as a service and register the machine with a hub. It runs the install script that the agent carries, with this very
program as the agent, so that nothing but the registration needs the hub. It may be run again at any time: the machine keeps its
identity, and the service restarts only when something changed.

The registration token comes from a file, from the standard input, or from the variable CATTLE_TOKEN; as an argument anybody on the
machine could read it. The other variables of the install script work here too.

The exit code is that of the install script.`,
		Example: `  system-agent join --server https://hub.example.com --token-file token --ca-checksum 2c5f... --worker
  get-token | system-agent join --server https://hub.example.com --token-file - --etcd --controlplane --node-name n1 --label zone=a`,
		Args: func(cmd *cobra.Command, args []string) error {
			if options.token != "" && options.tokenFile != "" {
				return errors.New("--token and --token-file exclude each other")
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := options.readToken(cmd.InOrStdin(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if os.Getuid() != 0 {
				return errors.New("must be run as root, since it installs a service")
			}
			return options.run(cmd.Context(), token, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVarP(&options.server, "server", "s", "", "https URL of the hub")
	f.StringVarP(&options.caChecksum, "ca-checksum", "c", "", "SHA-256 of what <server>/cacerts answers; without it the machine's own trusted CAs must know the hub")
	f.StringVar(&options.tokenFile, "token-file", "", "file that holds the registration token; - is the standard input")
	f.StringVarP(&options.token, "token", "t", "", "registration token; anybody on the machine can read it here, so better use --token-file")
	f.BoolVarP(&options.allRoles, "all-roles", "a", false, "this machine is etcd, control plane and worker")
	f.BoolVarP(&options.etcd, "etcd", "e", false, "this machine runs etcd")
	f.BoolVarP(&options.controlPlane, "controlplane", "p", false, "this machine runs the control plane")
	f.BoolVarP(&options.worker, "worker", "w", false, "this machine is a worker")
	f.BoolVar(&options.noRoles, "no-roles", false, "the hub knows the roles already")
	f.StringVarP(&options.nodeName, "node-name", "n", "", "name of the Kubernetes node")
	f.StringVar(&options.address, "address", "", "address that other machines use, the name of an interface, or a cloud's keyword such as awslocal")
	f.StringVarP(&options.internalAddress, "internal-address", "i", "", "address inside a private network")
	f.StringArrayVarP(&options.labels, "label", "l", nil, "label of the node, KEY=VALUE; may be repeated")
	f.StringArrayVar(&options.taints, "taint", nil, "taint of the node, KEY=VALUE:EFFECT; may be repeated")
	return cmd
}

// readToken gives the token; empty leaves it to the environment, and to what an earlier installation has kept.
func (o joinOptions) readToken(stdin io.Reader, stderr io.Writer) (string, error) {
	const most = 64 << 10
	var raw []byte
	var err error
	switch o.tokenFile {
	case "":
		if o.token != "" {
			fmt.Fprintln(stderr, "Warning: a token among the arguments can be read by anybody on this machine; use --token-file.")
		}
		return o.token, nil
	case "-":
		raw, err = io.ReadAll(io.LimitReader(stdin, most))
	default:
		raw, err = os.ReadFile(o.tokenFile)
	}
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if token == "" {
		return "", fmt.Errorf("--token-file %s: it holds no token", o.tokenFile)
	}
	return token, nil
}

// arguments are those of the install script; the token is not among them.
func (o joinOptions) arguments() []string {
	var args []string
	for _, flag := range []struct {
		name string
		set  bool
	}{{"--all-roles", o.allRoles}, {"--etcd", o.etcd}, {"--controlplane", o.controlPlane}, {"--worker", o.worker}, {"--no-roles", o.noRoles}} {
		if flag.set {
			args = append(args, flag.name)
		}
	}
	value := func(name string, values ...string) {
		for _, v := range values {
			if v != "" {
				args = append(args, name, v)
			}
		}
	}
	value("--server", o.server)
	value("--ca-checksum", o.caChecksum)
	value("--node-name", o.nodeName)
	value("--address", o.address)
	value("--internal-address", o.internalAddress)
	value("--label", o.labels...)
	value("--taint", o.taints...)
	return args
}

func (o joinOptions) run(ctx context.Context, token string, stdout, stderr io.Writer) error {
	script, err := install.Script()
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	machine := host.Machine{}
	// /run is root's, so nobody can put something else in the script's place.
	folder := fmt.Sprintf("/run/rancher-system-agent-join-%d", os.Getpid())
	if err := machine.MakeDir(folder, host.Private(0o700)); err != nil {
		return err
	}
	defer func() { _ = machine.RemoveAll(folder) }()
	uninstall := filepath.Join(folder, "uninstall.sh")
	if err := machine.WriteFile(uninstall, install.UninstallScript(), host.Private(0o700)); err != nil {
		return err
	}
	env := append(os.Environ(), "CATTLE_AGENT_BINARY_LOCAL=true", "CATTLE_AGENT_BINARY_LOCAL_LOCATION="+program,
		"CATTLE_AGENT_UNINSTALL_LOCAL=true", "CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION="+uninstall)
	if token != "" {
		env = append(env, "CATTLE_TOKEN="+token)
	}
	return runScript(ctx, script, o.arguments(), env, stdout, stderr)
}

// runScript runs a shell script and shows what it says as it comes.
func runScript(ctx context.Context, script []byte, args, env []string, stdout, stderr io.Writer) error {
	code, err := host.Machine{}.Attach(ctx, host.Command{Path: "sh", Args: append([]string{"-s", "--"}, args...), Stdin: script, Env: env}, stdout, stderr)
	if err != nil {
		return err
	}
	if code != 0 {
		return exit(max(code, exitError))
	}
	return nil
}
