// Package cli holds the commands of the hub: their flags, what they start in which order, and how they end. It must not decide anything
// about clusters or machines; that is for the packages it starts.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// exitCode ends the program without a word; the command has said all there is to say.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// exitChanges tells scripts that something would change.
const exitChanges exitCode = 2

// Main runs the command line and returns the exit code: 0, 1 after one line on stderr that says what is wrong, or the code that the
// command's help explains.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// Ending takes a while where other replicas take over; whoever asks twice does not want to wait.
	defer context.AfterFunc(ctx, stop)()

	forgetGlobalFlags()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		if code, ok := errors.AsType[exitCode](err); ok {
			return int(code)
		}
		fmt.Fprintln(stderr, "hub:", oneLine(err))
		return 1
	}
	return 0
}

// forgetGlobalFlags empties the global set of flags: the Kubernetes libraries put some of their own into it, and cobra would add them to
// every command.
var forgetGlobalFlags = sync.OnceFunc(func() { pflag.CommandLine = pflag.NewFlagSet("hub", pflag.ContinueOnError) })

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "hub",
		Short:         "Provision and manage RKE2 and k3s clusters",
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newServe(), newNodeCommand(), newImportCommand(), newPlan(), newTimeline(), newStatus(), newSnapshot(),
		newRotate(), newOperation(), newKubeconfig(), newToken(), newTokens(), newBackup(), newCopyIdentity(), newImages(),
		newMachine(), newNodeDriver(), newVersion())
	return root
}

// group completes a command that has nothing but subcommands.
func group(cmd *cobra.Command, children ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(children...)
	return cmd
}

// oneLine joins the lines of an error, since some libraries report several, and leaves nothing in it that a terminal would obey.
func oneLine(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = withoutControl(strings.TrimSpace(lines[i]))
	}
	return strings.Join(lines, "; ")
}
