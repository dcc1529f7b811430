// Package cli holds the commands of the system-agent, a file each: flags, wiring and exit codes. It decides nothing about plans.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Version is the version of the agent. The build sets it with -ldflags "-X github.com/drover-dev/drover/agent/cli.Version=v1.2.3".
var Version = "dev"

// The exit codes of every command; 0 is success.
const (
	exitError = 1
	// exitUsage means that the command line is invalid.
	exitUsage = 2
	// exitAttention means that the command succeeded and found something that needs attention.
	exitAttention = 3
)

// exitCode ends a command with this code and without a line on stderr, since the command has printed everything.
type exitCode int

// Error implements error.
func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Main runs the command line args, without the program's name, and returns the exit code. Every error but an exitCode is one line on
// stderr.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := Root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	// Errors before this hook runs are about flags and arguments.
	parsed := false
	root.PersistentPreRun = func(*cobra.Command, []string) { parsed = true }
	err := root.ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(stderr, "system-agent:", strings.ReplaceAll(err.Error(), "\n", "; "))
	if !parsed {
		return exitUsage
	}
	return exitError
}

// The groups of commands in the help of the root command.
const (
	groupInspect = "inspect"
	groupInstall = "install"
	groupService = "service"
)

// Root returns the command line; Main runs it, and the generator of the manual pages reads it.
func Root() *cobra.Command {
	root := &cobra.Command{
		Use:   "system-agent",
		Short: "Apply plans from a hub to this machine",
		Long: "Apply plans from a hub to this machine and report their status.\n\n" +
			"Exit codes: 0 success, 1 error, 2 invalid command line, 3 the machine needs attention (status).",
		Version:       Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("system-agent version {{.Version}}\n")
	root.AddGroup(&cobra.Group{ID: groupInspect, Title: "Inspection and troubleshooting:"},
		&cobra.Group{ID: groupInstall, Title: "Installation:"}, &cobra.Group{ID: groupService, Title: "Services and scripts:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, command := range commands {
			command.GroupID = group
			root.AddCommand(command)
		}
	}
	add(groupInspect, newStatus(), newPlan(), newHistory(), newLogs(), newRetry(), newDoctor(), newSupportBundle())
	add(groupInstall, newJoin(), newLeave(), newUpgradeNode())
	add(groupService, newRun(), newCluster(), newValidateConfig(), newValidateConnection(), newVersion(), newShim(), newRollback())
	root.SetCompletionCommandGroupID(groupService)
	return root
}

// requireRoot returns an error that gives the reason why a command needs root, unless the process is root.
func requireRoot(reason string) error {
	if os.Getuid() != 0 {
		return errors.New("must be run as root: " + reason)
	}
	return nil
}

// readsAgentFiles is the reason of the commands that only read.
const readsAgentFiles = "the agent's files belong to root"
