package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/util/operations"
)

// operationChange is a command that changes the specification of an operation.
type operationChange struct {
	use, short, long string
	// patch is a merge patch, done what the command prints after the operation.
	patch, done string
	// wait is set for a command that can wait for the end; then the operation is to end in one of these phases.
	wait []operationv1.Phase
}

func newOperationPause() *cobra.Command {
	return operationChange{
		use: "pause", short: "Pause an operation", patch: `{"spec":{"paused":true}}`, done: "paused",
		long: `Pause an operation: the hub starts nothing more of it. What a machine has begun goes on. An operation that has not begun waits
without a limit.`,
	}.command()
}

func newOperationResume() *cobra.Command {
	return operationChange{
		use: "resume", short: "Resume a paused operation", patch: `{"spec":{"paused":false}}`, done: "resumed",
		long: "Resume an operation that was paused.", wait: []operationv1.Phase{operationv1.PhaseSucceeded},
	}.command()
}

func newOperationCancel() *cobra.Command {
	return operationChange{
		use: "cancel", short: "Cancel an operation", patch: `{"spec":{"cancel":true}}`, done: "canceled",
		long: `Cancel an operation for good. What a machine has begun goes on, and does not count. docs/day-two.md says for each kind what a
canceled operation leaves behind.`,
		wait: []operationv1.Phase{operationv1.PhaseCanceled},
	}.command()
}

func (o operationChange) command() *cobra.Command {
	var where scoped
	var out output
	var wait waitOptions
	cmd := &cobra.Command{
		Use: o.use + " <namespace>/<kind>/<name>", Short: o.short, Long: o.long, Args: oneOperation,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(out.check(), wait.check()); err != nil {
				return err
			}
			op, err := where.operation(args[0])
			if err != nil {
				return err
			}
			c, err := where.client()
			if err != nil {
				return err
			}
			if err := o.run(cmd.Context(), c, op); err != nil {
				return explain(err)
			}
			line := operationLineOf(op)
			if !wait.wait || out.form == "table" {
				err := out.print(cmd.OutOrStdout(), line, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s %s\n", line.ref(), o.done)
					return err
				})
				if err != nil {
					return err
				}
			}
			if !wait.wait {
				return nil
			}
			return wait.until(cmd, c, op, where.connection, out, o.wait...)
		},
	}
	where.addFlags(cmd.Flags())
	out.addFlags(cmd.Flags())
	if o.wait != nil {
		wait.addFlags(cmd.Flags())
	}
	return cmd
}

// oneOperation checks that a command has one argument.
func oneOperation(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return errors.New(commandName(cmd) + " needs one argument: <namespace>/<kind>/<name>; see \"hub operation list\"")
	}
	return nil
}

// run changes an operation that has not ended, and leaves in op what the API server has answered.
func (o operationChange) run(ctx context.Context, c client.Client, op operationv1.Operation) error {
	if err := readOperation(ctx, c, op); err != nil {
		return err
	}
	if phase := operations.EndedIn(op); phase != "" {
		return fmt.Errorf("%s cannot be %s: it has ended (%s)", operationLineOf(op).ref(), o.done, phase)
	}
	if err := c.Patch(ctx, op, client.RawPatch(types.MergePatchType, []byte(o.patch))); err != nil {
		return fmt.Errorf("changing %s: %w", operationLineOf(op).ref(), err)
	}
	return nil
}

func readOperation(ctx context.Context, c client.Reader, op operationv1.Operation) error {
	key, ref := client.ObjectKeyFromObject(op), operationLineOf(op).ref()
	err := c.Get(ctx, key, op)
	if apierrors.IsNotFound(err) {
		return notFoundError{ref, err}
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", ref, err)
	}
	return nil
}

// notFoundError is returned for an operation that does not exist.
type notFoundError struct {
	ref string
	error
}

func (e notFoundError) Error() string { return "there is no " + e.ref + "; see \"hub operation list\"" }
func (e notFoundError) Unwrap() error { return e.error }
