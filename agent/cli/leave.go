package cli

import (
	"bufio"
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

// serviceName is the unit of the agent.
const serviceName = "rancher-system-agent"

// distributionScripts remove a distribution; distributionFolders are where its own installer puts them when they are not in the PATH.
var (
	distributionScripts = []string{"rke2-uninstall.sh", "k3s-uninstall.sh", "k3s-agent-uninstall.sh"}
	distributionFolders = []string{"/usr/local/bin", "/opt/rke2/bin", "/usr/bin", "/opt/bin"}
)

func newLeave() *cobra.Command {
	var yes, purge bool
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Remove the agent from this machine",
		Long: `Remove the agent from this machine: the service, instructions that still run, the programs, configuration, identity and data. What
plans have installed stays, and is listed; --purge-distribution removes RKE2 and k3s with their own uninstall scripts first.

The hub still knows the machine afterwards, until its Machine is deleted there.

The exit code is that of the uninstall script.`,
		Example: "  system-agent leave\n  system-agent leave --purge-distribution --yes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Getuid() != 0 {
				return errors.New("must be run as root, since it removes a service")
			}
			scripts := findScripts(distributionScripts, append(filepath.SplitList(os.Getenv("PATH")), distributionFolders...))
			if !yes {
				agreed, err := confirm(cmd.InOrStdin(), cmd.ErrOrStderr(), purge, scripts)
				if err != nil {
					return err
				}
				if !agreed {
					return errors.New("nothing was removed")
				}
			}
			if !purge {
				scripts = nil
			}
			return leave(cmd.Context(), scripts, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&purge, "purge-distribution", false, "also run rke2-uninstall.sh, k3s-uninstall.sh and k3s-agent-uninstall.sh where they are")
	return cmd
}

// findScripts looks programs up; each is found once.
func findScripts(names, folders []string) []string {
	var found []string
	for _, name := range names {
		for _, folder := range folders {
			path := filepath.Join(folder, name)
			if info, err := os.Stat(path); err == nil && filepath.IsAbs(folder) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				found = append(found, path)
				break
			}
		}
	}
	return found
}

func confirm(in io.Reader, out io.Writer, purge bool, scripts []string) (bool, error) {
	fmt.Fprintln(out, "This removes the agent, its configuration, the machine's identity and the agent's data.")
	switch {
	case purge && len(scripts) > 0:
		fmt.Fprintf(out, "It also runs %s, which remove Kubernetes and its data.\n", strings.Join(scripts, ", "))
	case purge:
		fmt.Fprintln(out, "No distribution was found to remove.")
	case len(scripts) > 0:
		fmt.Fprintln(out, "Kubernetes stays on the machine.")
	}
	fmt.Fprint(out, "Type yes to go on: ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	return strings.TrimSpace(answer) == "yes", nil
}

// leave removes distributions first, while the agent is stopped so that no plan installs them again, and then the agent.
func leave(ctx context.Context, scripts []string, stdout, stderr io.Writer) error {
	machine := host.Machine{}
	if len(scripts) > 0 {
		// A machine without the service, or without systemd, has nothing to stop.
		_, _ = machine.Attach(ctx, host.Command{Path: "systemctl", Args: []string{"stop", serviceName}, Env: os.Environ()}, io.Discard, io.Discard)
	}
	for _, script := range scripts {
		fmt.Fprintf(stdout, "[INFO]  Running %s\n", script)
		code, err := machine.Attach(ctx, host.Command{Path: script, Env: os.Environ()}, stdout, stderr)
		if err != nil {
			return err
		}
		if code != 0 {
			return fmt.Errorf("%s: exit code %d; the agent is stopped and still installed", script, code)
		}
	}
	return runScript(ctx, install.UninstallScript(), nil, os.Environ(), stdout, stderr)
}
