// Package cli holds the commands of the agent: their arguments, what they start, and how they end. It decides nothing about plans.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Version is set by the build with -ldflags "-X github.com/drover-dev/drover/agent/cli.Version=v1.2.3".
var Version = "dev"

// The exit codes of every command.
const (
	exitError = 1
	// exitUsage is for a command line that cannot be understood.
	exitUsage = 2
	// exitAttention is for a question that was answered, and the answer is that somebody should look at the machine.
	exitAttention = 3
)

// exit ends a command with a code of its own and without a line on stderr: what there is to say has been said.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Main runs the command line and returns the exit code: 0, or another after a line on stderr that says what is wrong.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := Root()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	// What comes before a command's own work is about its arguments.
	understood := false
	root.PersistentPreRun = func(*cobra.Command, []string) { understood = true }
	err := root.ExecuteContext(ctx)
	var code exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(stderr, "system-agent:", strings.ReplaceAll(err.Error(), "\n", "; "))
	if !understood {
		return exitUsage
	}
	return exitError
}

// Root is the command line, for programs that describe it; Main runs it.
func Root() *cobra.Command {
	root := &cobra.Command{
		Use:   "system-agent",
		Short: "Applies the plans of a hub to this machine",
		Long: "Applies the plans of a hub to this machine, and tells what it does.\n\n" +
			"Exit codes: 0 all is well, 1 an error, 2 the command line cannot be understood, 3 the machine needs attention (status).",
		Version:       Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("system-agent version {{.Version}}\n")
	root.AddGroup(&cobra.Group{ID: groupLook, Title: "What happens on this machine:"},
		&cobra.Group{ID: groupInstall, Title: "Installation:"}, &cobra.Group{ID: groupService, Title: "For services and scripts:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, command := range commands {
			command.GroupID = group
			root.AddCommand(command)
		}
	}
	add(groupLook, newStatus(), newPlan(), newHistory(), newLogs(), newRetry(), newDoctor(), newSupportBundle())
	add(groupInstall, newJoin(), newLeave())
	add(groupService, newRun(), newCluster(), newValidateConfig(), newValidateConnection(), newVersion(), newShim())
	root.SetCompletionCommandGroupID(groupService)
	return root
}

const (
	groupLook    = "look"
	groupInstall = "install"
	groupService = "service"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the agent's version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "system-agent %s %s/%s %s\n", Version, runtime.GOOS, runtime.GOARCH, runtime.Version())
			return err
		},
	}
}
