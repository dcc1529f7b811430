package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/util/operations"
)

func newOperation() *cobra.Command {
	return group(&cobra.Command{
		Use:   "operation",
		Short: "Manage operations on clusters",
		Long: `List, wait for, pause, resume and cancel operations: work on a cluster that is done once, such as saving a snapshot of etcd.
An operation is named <namespace>/<kind>/<name>, as "hub operation list" prints it, or <kind>/<name> with --namespace.`,
	}, newOperationList(), newOperationWait(), newOperationPause(), newOperationResume(), newOperationCancel())
}

// operationLine is an operation as it is printed.
type operationLine struct {
	Kind         string                      `json:"kind"`
	Namespace    string                      `json:"namespace"`
	Name         string                      `json:"name"`
	Cluster      string                      `json:"cluster"`
	Phase        operationv1.Phase           `json:"phase"`
	Step         string                      `json:"step,omitempty"`
	Paused       bool                        `json:"paused,omitempty"`
	Reason       string                      `json:"reason,omitempty"`
	Message      string                      `json:"message,omitempty"`
	Machines     []operationv1.MachineStatus `json:"machines,omitempty"`
	Created      metav1.Time                 `json:"created"`
	LastUpdated  *metav1.Time                `json:"lastUpdated,omitempty"`
	TerminatedAt *metav1.Time                `json:"terminatedAt,omitempty"`
}

func operationLineOf(op operationv1.Operation) operationLine {
	spec, status := op.CommonSpec(), op.CommonStatus()
	line := operationLine{
		Kind: operationv1.Kind(op), Namespace: op.GetNamespace(), Name: op.GetName(), Cluster: spec.ClusterRef.Name,
		Phase: cmp.Or(status.Phase, operationv1.PhasePending), Step: status.Step,
		Paused: spec.Paused, Machines: status.Machines, Created: op.GetCreationTimestamp(), LastUpdated: status.LastUpdated,
		TerminatedAt: status.TerminatedAt,
	}
	if c := meta.FindStatusCondition(status.Conditions, operationv1.SucceededCondition); c != nil {
		line.Reason, line.Message = c.Reason, c.Message
	} else if !line.Phase.Ended() {
		line.Message = "The hub has not begun with it"
	}
	return line
}

// ref is how the commands name the operation.
func (l operationLine) ref() string { return l.Namespace + "/" + l.Kind + "/" + l.Name }

// phaseText is the phase with what a user must know of it.
func (l operationLine) phaseText() string {
	if l.Paused && !l.Phase.Ended() {
		return string(l.Phase) + " (paused)"
	}
	return string(l.Phase)
}

// done counts the machines that have succeeded.
func (l operationLine) done() (done int) {
	for _, m := range l.Machines {
		if m.Phase == operationv1.PhaseSucceeded {
			done++
		}
	}
	return done
}

func newOperationList() *cobra.Command {
	return listed(&cobra.Command{
		Use:   "list [<namespace>/<cluster>]",
		Short: "List operations",
		Long: `List the operations of a cluster, of a namespace or of all, the newest last. One that has ended is kept for the seconds in its
spec.ttl.`,
		Example: "  hub operation list fleet-default/demo\n  hub operation list -n fleet-default -o json",
	}, &scoped{}, listOperations, writeOperations)
}

// listOperations lists those of a cluster, of a namespace where of has no name, or all. Kinds that the hub does not have are left out: it
// may be older than the command.
func listOperations(ctx context.Context, c client.Reader, of client.ObjectKey) ([]operationLine, error) {
	lines := []operationLine{}
	for _, list := range operationv1.Lists() {
		err := c.List(ctx, list, client.InNamespace(of.Namespace))
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing operations: %w", err)
		}
		for _, op := range operations.Items(list) {
			if line := operationLineOf(op); of.Name == "" || line.Cluster == of.Name {
				lines = append(lines, line)
			}
		}
	}
	slices.SortFunc(lines, func(a, b operationLine) int {
		return cmp.Or(a.Created.Compare(b.Created.Time), cmp.Compare(a.ref(), b.ref()))
	})
	return lines, nil
}

func writeOperations(out io.Writer, lines []operationLine, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OPERATION\tCLUSTER\tPHASE\tSTEP\tMACHINES\tAGE\tMESSAGE")
	for _, l := range lines {
		machines := ""
		if len(l.Machines) > 0 {
			machines = fmt.Sprintf("%d/%d", l.done(), len(l.Machines))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.ref(), printable(l.Cluster), l.phaseText(), printable(l.Step), machines,
			duration.HumanDuration(now.Sub(l.Created.Time)), printable(l.Message))
	}
	return table.Flush()
}
