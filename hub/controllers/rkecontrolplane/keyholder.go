package rkecontrolplane

import (
	"context"
	"fmt"

	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/plan/operation"
)

// keyHolderMark is the value of cluster.x-k8s.io/skip-remediation on the machine on which alone the new key of an EncryptionKeyRotation is.
const keyHolderMark = "rke.cattle.io/encryption-key"

// protectKeyHolder keeps health checks from replacing the machine on which alone a new key is, with which Secrets are written. The mark
// stays when the rotation ends there without success, until another one has written all Secrets with a key that all servers have.
func (r *Reconciler) protectKeyHolder(ctx context.Context, s *scope) error {
	holder, rotating := operation.KeyHolder(s.operation)
	if !rotating {
		return nil
	}
	var errs []error
	for _, m := range s.machines {
		value, set := m.machine.Annotations[clusterv1.MachineSkipRemediationAnnotation]
		mark := ""
		switch is := m.machine.Name == holder; {
		case is && !set:
			mark = keyHolderMark
		case is || value != keyHolderMark: // somebody else's annotation stays
			continue
		}
		changed := m.machine.DeepCopy()
		setOrDelete(&changed.Annotations, clusterv1.MachineSkipRemediationAnnotation, mark)
		if err := r.Client.Patch(ctx, changed, client.MergeFrom(m.machine), fieldOwner); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("annotating Machine %s: %w", m.machine.Name, err))
		}
	}
	return kerrors.NewAggregate(errs)
}
