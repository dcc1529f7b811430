package rkecontrolplane

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/hub/plan/operation"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/operations"
)

// holdOperations writes the status of the operations of a cluster whose control plane waits before it comes to them: they say what it waits
// for. Those that have ended are deleted in time.
func (r *Reconciler) holdOperations(ctx context.Context, s *scope, wait rollout.Wait) error {
	clusters, err := r.clustersOf(ctx, s)
	if err != nil {
		return err
	}
	for _, cluster := range clusters {
		all, err := r.operationsOf(ctx, cluster)
		if err != nil {
			return err
		}
		for _, op := range all {
			if phase := operations.EndedIn(op); phase != "" {
				if err := r.expire(ctx, s, op, phase); err != nil {
					return err
				}
				continue
			}
			held := operations.Copy(op)
			operation.HoldFor(held, r.Now(), wait.Reason, wait.Message)
			if err := r.operationWriter().Write(ctx, op, held, nil); err != nil && !apierrors.IsGone(err) {
				return err
			}
			if held.CommonStatus().Phase.Ended() {
				s.requeue(afterOperation)
			}
		}
	}
	return nil
}

// clustersOf returns the Clusters whose operations nobody but this control plane carries out: its own, or where that is not certain, those
// that refer to the control plane.
func (r *Reconciler) clustersOf(ctx context.Context, s *scope) (keys []client.ObjectKey, _ error) {
	if s.cluster != nil {
		return []client.ObjectKey{client.ObjectKeyFromObject(s.cluster)}, nil
	}
	var list clusterv1.ClusterList
	if err := r.Client.List(ctx, &list, client.InNamespace(s.controlPlane.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Clusters: %w", err)
	}
	for i := range list.Items {
		for _, request := range mapfuncs.ClusterToControlPlane(ctx, &list.Items[i]) {
			if request.Name == s.controlPlane.Name {
				keys = append(keys, client.ObjectKeyFromObject(&list.Items[i]))
			}
		}
	}
	return keys, nil
}
