package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/util/operations"
	"github.com/drover-dev/drover/packaging/install"
)

// waitOptions are the flags of commands that can wait for the end of an operation.
type waitOptions struct {
	wait    bool
	timeout time.Duration
}

func (o *waitOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.wait, "wait", false, "show the progress until the operation has ended; exit with 0 only if it has ended as it was to")
	o.addTimeout(flags)
}

func (o *waitOptions) addTimeout(flags *pflag.FlagSet) {
	flags.DurationVar(&o.timeout, "timeout", 0, "how long to wait for the end; 0 is for ever. The operation goes on after it")
}

func (o *waitOptions) check() error {
	switch {
	case o.timeout < 0:
		return fmt.Errorf("--timeout %s: it must not be negative", o.timeout)
	case o.timeout > 0 && !o.wait:
		return errors.New("--timeout needs --wait")
	}
	return nil
}

func newOperationWait() *cobra.Command {
	var where scoped
	var out output
	wait := waitOptions{wait: true}
	cmd := &cobra.Command{
		Use:   "wait <namespace>/<kind>/<name>",
		Short: "Wait for the end of an operation",
		Long: `Show the progress of an operation until it has ended: its steps, and the machines of each. On a terminal the output is updated in
place; elsewhere each change is a line. With -o json, each change is the whole operation on a line, and
standard error says what is waited for when the hub does not answer.

Exit codes: 0 if the operation has succeeded; 1 if it has ended otherwise, and for an error. The end of the command does not end the
operation.`,
		Args: oneOperation,
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
			return wait.until(cmd, c, op, where.connection, out, operationv1.PhaseSucceeded)
		},
	}
	where.addFlags(cmd.Flags())
	out.addFlags(cmd.Flags())
	wait.addTimeout(cmd.Flags())
	return cmd
}

// until shows the progress of an operation until it has ended. It is an error if it ends in another phase than one of want.
func (o *waitOptions) until(cmd *cobra.Command, c client.WithWatch, op operationv1.Operation, where connection, out output,
	want ...operationv1.Phase) error {
	ctx := cmd.Context()
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	p := newProgress(cmd.OutOrStdout(), out.form == "json")
	p.messages = cmd.ErrOrStderr()
	defer p.stop()
	defer p.answered()
	ref := operationLineOf(op).ref()
	line, err := (&follower{client: c, operation: op, progress: p, uid: op.GetUID()}).follow(ctx)
	goesOn := fmt.Sprintf("the operation goes on; \"hub operation wait %[1]s%[2]s\" waits for it, "+
		"\"hub operation cancel %[1]s%[2]s\" cancels it", ref, where.arguments())
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && err != nil:
		return fmt.Errorf("%s has not ended within %s: %s", ref, o.timeout, goesOn)
	case ctx.Err() != nil && err != nil:
		p.interrupt()
		return fmt.Errorf("interrupted: %s", goesOn)
	case err != nil:
		return explain(err)
	case slices.Contains(want, line.Phase):
		return nil
	}
	return fmt.Errorf("%s has ended with %s: %s", ref, line.Phase, printable(line.Message))
}

// arguments are the flags by which another command reaches the same hub.
func (c *connection) arguments() string {
	switch {
	case c.kubeconfig != "":
		return " --kubeconfig " + install.Quote(c.kubeconfig)
	case c.dataDir != defaultDataDir():
		return " --data-dir " + install.Quote(c.dataDir)
	}
	return ""
}

// follower watches one operation.
type follower struct {
	client    client.WithWatch
	operation operationv1.Operation
	progress  *progress
	// uid is that of the operation once it was created or read.
	uid types.UID
}

// follow shows an operation whenever it changes, and returns it when it has ended. While the hub does not answer, for instance since it is
// restarted, it goes on trying.
func (f *follower) follow(ctx context.Context) (operationLine, error) {
	for {
		line, err := f.watch(ctx)
		switch {
		case err == nil && line.Phase.Ended():
			return line, nil
		case ctx.Err() != nil:
			return line, ctx.Err()
		case err != nil && (f.uid == "" || !transient(err)):
			return line, err
		case err != nil:
			f.progress.trouble(err)
		}
		select {
		case <-ctx.Done():
			return line, ctx.Err()
		case <-time.After(rewatch):
		}
	}
}

// watch follows the operation until it has ended, or the watch has.
func (f *follower) watch(ctx context.Context) (operationLine, error) {
	op := operations.Copy(f.operation)
	f.progress.awaitAnswer(operationLineOf(op).ref())
	err := readOperation(ctx, f.client, op)
	if f.uid != "" && apierrors.IsNotFound(err) || err == nil && f.uid != "" && f.uid != op.GetUID() {
		return operationLine{}, f.deleted()
	}
	if err != nil {
		return operationLine{}, err
	}
	f.uid = op.GetUID()
	line := f.show(op)
	if line.Phase.Ended() {
		return line, nil
	}
	stream, err := f.client.Watch(ctx, operationv1.ListOf(op), client.InNamespace(op.GetNamespace()),
		client.MatchingFields{metav1.ObjectNameField: op.GetName()},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: op.GetResourceVersion()}})
	if err != nil {
		return line, fmt.Errorf("watching %s: %w", line.ref(), err)
	}
	defer stream.Stop()
	for {
		select {
		case <-ctx.Done():
			return line, ctx.Err()
		case <-f.progress.ticks:
			f.progress.redraw()
		case e, open := <-stream.ResultChan():
			if !open {
				return line, nil
			}
			if e.Type == watch.Error {
				return line, ignoreExpired(apierrors.FromObject(e.Object))
			}
			now, ok := e.Object.(operationv1.Operation)
			if !ok || now.GetUID() != f.uid {
				continue
			}
			// The last event of an operation that is deleted has the phase in which it ended.
			if line = f.show(now); line.Phase.Ended() {
				return line, nil
			}
			if e.Type == watch.Deleted {
				return line, f.deleted()
			}
		}
	}
}

func (f *follower) show(op operationv1.Operation) operationLine {
	line := operationLineOf(op)
	f.progress.show(line)
	return line
}

// deletedError is returned for an operation that was deleted before anybody has seen its end.
type deletedError struct{ ref string }

func (e deletedError) Error() string {
	return e.ref + " was deleted before it was seen to end; see \"hub timeline\" for how it went"
}

func (f *follower) deleted() error { return deletedError{operationLineOf(f.operation).ref()} }

// transient reports whether a request may succeed later: there was no answer, or the API server asks to come back.
func transient(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return !meta.IsNoMatchError(err) && !errors.As(err, new(deletedError))
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}
