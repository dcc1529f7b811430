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
	"github.com/spf13/pflag"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/packaging/install"
)

// maxTokenBytes bounds what is read as registration token.
const maxTokenBytes = 64 << 10

func newJoin() *cobra.Command {
	var token, tokenFile string
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Install the agent and register this machine",
		Long: `Install the agent as a service and register this machine with a hub. The command runs the embedded install script with this
binary as the agent, so that only the registration contacts the hub. It is idempotent: the machine keeps its identity, and the service
is restarted only if something changed.

The registration token is read from a file, from standard input, or from the environment variable CATTLE_TOKEN; an argument is visible to
every user of the machine. The other environment variables of the install script are supported, too.

The exit code is that of the install script.`,
		Example: `  system-agent join --server https://hub.example.com --token-file token --ca-checksum 2c5f... --worker
  get-token | system-agent join --server https://hub.example.com --token-file - --etcd --controlplane --node-name n1 --label zone=a`,
		Args: func(cmd *cobra.Command, args []string) error {
			if token != "" && tokenFile != "" {
				return errors.New("--token and --token-file are mutually exclusive")
			}
			return cobra.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := readToken(token, tokenFile, interruptible(cmd.Context(), cmd.InOrStdin()), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := requireRoot("join installs a service"); err != nil {
				return err
			}
			return join(cmd.Context(), token, installArguments(cmd.Flags()), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringP("server", "s", "", "URL of the hub, https://...")
	f.StringP("ca-checksum", "c", "",
		"SHA-256 of <server>/cacerts; without it, a CA that the machine trusts must have signed the hub's certificate")
	f.StringVar(&tokenFile, "token-file", "", "file with the registration token; - is standard input")
	f.StringVarP(&token, "token", "t", "", "registration token; visible to every user of the machine, prefer --token-file")
	f.BoolP("all-roles", "a", false, "all roles: etcd, control plane and worker")
	f.BoolP("etcd", "e", false, "etcd role")
	f.BoolP("controlplane", "p", false, "control plane role")
	f.Bool("control-plane", false, "same as --controlplane")
	_ = f.MarkHidden("control-plane")
	f.BoolP("worker", "w", false, "worker role")
	f.Bool("no-roles", false, "the roles are already set in the hub")
	f.StringP("node-name", "n", "", "name of the Kubernetes Node")
	f.String("address", "", "external address, name of a network interface, or cloud keyword such as awslocal")
	f.StringP("internal-address", "i", "", "internal address, name of a network interface, or cloud keyword")
	f.StringArrayP("label", "l", nil, "label of the Node, KEY=VALUE; may be repeated")
	f.StringArray("taint", nil, "taint of the Node, KEY=VALUE:EFFECT; may be repeated")
	return cmd
}

// readToken returns the token of the flags. If it is empty, the install script takes that of the environment or of a previous installation.
func readToken(token, tokenFile string, stdin io.Reader, stderr io.Writer) (string, error) {
	var raw []byte
	var err error
	switch tokenFile {
	case "":
		if token != "" {
			fmt.Fprintln(stderr, "Warning: --token is visible to every user of this machine; use --token-file.")
		}
		return token, nil
	case "-":
		raw, err = io.ReadAll(io.LimitReader(stdin, maxTokenBytes))
	default:
		raw, err = os.ReadFile(tokenFile)
	}
	if err != nil {
		return "", fmt.Errorf("reading the registration token: %w", err)
	}
	if token = strings.TrimSpace(string(raw)); token == "" {
		return "", fmt.Errorf("--token-file %s: contains no token", tokenFile)
	}
	return token, nil
}

// installArguments returns the flags that are set as arguments of the install script, which has the same ones; the token is not among them.
func installArguments(flags *pflag.FlagSet) []string {
	var args []string
	flags.Visit(func(f *pflag.Flag) {
		name, value := "--"+f.Name, f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			for _, element := range list.GetSlice() {
				args = append(args, name, element)
			}
			return
		}
		switch {
		case f.Name == "token" || f.Name == "token-file" || value == "" || value == "false":
		case f.Value.Type() == "bool":
			args = append(args, name)
		default:
			args = append(args, name, value)
		}
	})
	return args
}

// join runs the install script. The token is in its environment, which other users cannot read.
func join(ctx context.Context, token string, args []string, stdout, stderr io.Writer) error {
	script, err := install.Script()
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the path of this binary: %w", err)
	}
	machine := host.Local{}
	// Only root writes in /run, so that no other user can replace the script.
	directory := fmt.Sprintf("/run/rancher-system-agent-join-%d", os.Getpid())
	if err := machine.MkdirAll(directory, fs.WithMode(0o700)); err != nil {
		return err
	}
	defer func() { _ = machine.RemoveAll(directory) }()
	uninstall := filepath.Join(directory, "uninstall.sh")
	if err := machine.WriteFile(uninstall, install.UninstallScript(), fs.WithMode(0o700)); err != nil {
		return err
	}
	env := append(os.Environ(), "CATTLE_AGENT_BINARY_LOCAL=true", "CATTLE_AGENT_BINARY_LOCAL_LOCATION="+program,
		"CATTLE_AGENT_UNINSTALL_LOCAL=true", "CATTLE_AGENT_UNINSTALL_LOCAL_LOCATION="+uninstall)
	if token != "" {
		env = append(env, "CATTLE_TOKEN="+token)
	}
	return runScript(ctx, script, args, env, stdout, stderr)
}

// runScript runs a shell script and passes its output through. Its exit code becomes that of the command.
func runScript(ctx context.Context, script []byte, args, env []string, stdout, stderr io.Writer) error {
	code, err := run.Attach(ctx, run.Command{Path: "sh", Args: append([]string{"-s", "--"}, args...), Stdin: script, Env: env}, stdout, stderr)
	if err != nil {
		return err
	}
	if code != 0 {
		return exitCode(max(code, exitError))
	}
	return nil
}
