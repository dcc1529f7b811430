package rkecontrolplane

import (
	"context"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// marks are annotations of a Machine: while it has one of them, it is not replaced, or its etcd member not removed.
type marks struct {
	// restoring is the value of RestoringAnnotation; empty without it.
	restoring string
	// skips is true with cluster.x-k8s.io/skip-remediation, whose value skip is empty where somebody else has set it without one.
	skips bool
	skip  string
}

func marksOf(machine *clusterv1.Machine) marks {
	skip, skips := machine.Annotations[clusterv1.MachineSkipRemediationAnnotation]
	return marks{restoring: machine.Annotations[rkev1.RestoringAnnotation], skips: skips, skip: skip}
}

// setSkip keeps health checks from replacing the Machine while wanted, for the reason that value names. Somebody else's annotation stays.
func (k *marks) setSkip(value string, wanted bool) {
	switch {
	case wanted && !k.skips:
		k.skips, k.skip = true, value
	case !wanted && k.skip == value:
		k.skips, k.skip = false, ""
	}
}

// markMachines changes the marks of Machines, all those of one Machine in one request: between two, a health check would replace one that
// has lost a mark and not yet got the next. What is not to be replaced does not wait for that either.
func (r *Reconciler) markMachines(ctx context.Context, s *scope, change func(*machine, *marks)) error {
	var errs []error
	for _, m := range s.machines {
		have := marksOf(m.machine)
		want := have
		change(m, &want)
		marked := m.machine
		if want != have {
			marked = m.machine.DeepCopy()
			setOrDelete(&marked.Annotations, rkev1.RestoringAnnotation, want.restoring)
			if want.skip != have.skip {
				setOrDelete(&marked.Annotations, clusterv1.MachineSkipRemediationAnnotation, want.skip)
			}
			if err := r.Client.Patch(ctx, marked, client.MergeFrom(m.machine), fieldOwner); client.IgnoreNotFound(err) != nil {
				errs = append(errs, fmt.Errorf("annotating Machine %s: %w", m.machine.Name, err))
				continue
			}
		}
		errs = append(errs, r.cancelRemediation(ctx, marked))
	}
	return kerrors.NewAggregate(errs)
}
