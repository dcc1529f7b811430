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

	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/packaging/install"
	"github.com/drover-dev/drover/plans"
)

// uninstallScripts remove a distribution; uninstallDirectories are where its installer puts them, whatever the PATH.
var (
	uninstallScripts     = []string{"rke2-uninstall.sh", "k3s-uninstall.sh", "k3s-agent-uninstall.sh"}
	uninstallDirectories = []string{"/usr/local/bin", "/opt/rke2/bin", "/usr/bin", "/opt/bin"}
)

func newLeave() *cobra.Command {
	var yes, purge bool
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Remove the agent from this machine",
		Long: `Remove the agent from this machine: service, running instructions, programs, configuration, identity and data. Software that plans
have installed is kept and listed; --purge-distribution first removes RKE2 and k3s with their uninstall scripts.

The hub keeps the machine until its Machine object is deleted.

The exit code is that of the uninstall script.`,
		Example: "  system-agent leave\n  system-agent leave --purge-distribution --yes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := requireRoot("leave removes a service"); err != nil {
				return err
			}
			scripts := findScripts(uninstallScripts, append(filepath.SplitList(os.Getenv("PATH")), uninstallDirectories...))
			if purge && len(scripts) > 0 {
				if err := (&target{}).checkDataDirectories(cmd.Context()); err != nil {
					return err
				}
			}
			if !yes {
				confirmed, err := confirm(interruptible(cmd.Context(), cmd.InOrStdin()), cmd.ErrOrStderr(), purge, scripts)
				if err != nil {
					return err
				}
				if !confirmed {
					return errors.New("canceled: nothing was removed")
				}
			}
			if !purge {
				scripts = nil
			}
			return leave(cmd.Context(), scripts, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	cmd.Flags().BoolVar(&purge, "purge-distribution", false,
		"first run rke2-uninstall.sh, k3s-uninstall.sh and k3s-agent-uninstall.sh if they are installed")
	return cmd
}

// findScripts returns the paths of the named executables in the directories; for each name the first one found.
func findScripts(names, directories []string) []string {
	var found []string
	for _, name := range names {
		for _, directory := range directories {
			path := filepath.Join(directory, name)
			if info, err := os.Stat(path); err == nil && filepath.IsAbs(directory) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				found = append(found, path)
				break
			}
		}
	}
	return found
}

// dataDirectories are the variables by which uninstall scripts find the data of a distribution, and where they look without them.
var dataDirectories = map[string]string{"K3S_DATA_DIR": "/var/lib/rancher/k3s", "RKE2_DATA_DIR": "/var/lib/rancher/rke2"}

// checkDataDirectories fails where a plan of this machine has put the data of the distribution into another directory than its uninstall
// script would remove. What else is in that directory is removed, too, so that the caller has to name it.
func (t *target) checkDataDirectories(ctx context.Context) error {
	v, err := t.inspect(ctx)
	if err != nil {
		return nil // what is left of an agent is removed all the same
	}
	for _, state := range v.status.Sources {
		raw, err := v.plan(ctx, state)
		if err != nil {
			continue
		}
		plan, err := plans.Decode(raw)
		if err != nil {
			continue
		}
		for _, instruction := range plan.Instructions {
			for _, pair := range instruction.Env {
				name, value, _ := strings.Cut(pair, "=")
				usual, known := dataDirectories[name]
				if !known || !filepath.IsAbs(value) || filepath.Clean(value) == usual || os.Getenv(name) != "" {
					continue
				}
				return fmt.Errorf("the data of Kubernetes is in %[2]s, and not in %[3]s, which the uninstall script removes; to delete all of %[2]s, "+
					"run: %[1]s=%[2]s system-agent leave --purge-distribution", name, value, usual)
			}
		}
	}
	return nil
}

// confirm asks on out whether to go on; true only for the answer "yes".
func confirm(in io.Reader, out io.Writer, purge bool, scripts []string) (bool, error) {
	fmt.Fprintln(out, "This removes the agent with its configuration, identity and data.")
	switch {
	case purge && len(scripts) > 0:
		fmt.Fprintf(out, "It also runs %s, which removes Kubernetes and its data.\n", strings.Join(scripts, ", "))
	case purge:
		fmt.Fprintln(out, "No distribution is installed.")
	case len(scripts) > 0:
		fmt.Fprintln(out, "Kubernetes stays installed. Without its identity this machine cannot be registered again before Kubernetes and its "+
			"data are removed: to have that choice, copy cattle-id and machine-secret from the directory of the configuration first.")
	}
	fmt.Fprint(out, "Type yes to continue: ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading the answer: %w", err)
	}
	return strings.TrimSpace(answer) == "yes", nil
}

// runUnits returns patterns of the units in which instructions of plans run, those of the hub and those of files, as in the uninstall
// script. They go on when the agent is stopped.
func runUnits() []string {
	half := strings.Repeat("[0-9a-f]", 6)
	return []string{"system-agent-" + half + half + "-*.service", "system-agent-" + half + "-" + half + half + "-*.service"}
}

// leave runs the uninstall scripts of distributions and then that of the agent. The agent and the instructions that run are stopped first,
// so that no plan installs the distribution again.
func leave(ctx context.Context, scripts []string, stdout, stderr io.Writer) error {
	if len(scripts) > 0 {
		// Without the service, or without systemd, there is nothing to stop.
		stop := append([]string{"stop", unitName}, runUnits()...)
		_, _ = run.Attach(ctx, run.Command{Path: "systemctl", Args: stop, Env: os.Environ()}, io.Discard, io.Discard)
	}
	for _, script := range scripts {
		fmt.Fprintf(stdout, "[INFO]  Running %s\n", script)
		code, err := run.Attach(ctx, run.Command{Path: script, Env: os.Environ()}, stdout, stderr)
		if err != nil {
			return err
		}
		if code != 0 {
			return fmt.Errorf("%s: exit code %d; the agent is stopped and still installed", script, code)
		}
	}
	return runScript(ctx, install.UninstallScript(), nil, os.Environ(), stdout, stderr)
}
