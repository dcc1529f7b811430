package operation

import (
	"fmt"
	"time"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

// The reasons of operations whose cluster the hub does not manage.
const (
	// ReasonClusterImported is that of an operation for an imported cluster, whose machines have no plans.
	ReasonClusterImported = "ClusterImported"
	// ReasonControlPlaneNotSupported is that of an operation for a cluster with a control plane of another provider.
	ReasonControlPlaneNotSupported = "ControlPlaneNotSupported"
	// ReasonClusterDeleted is that of an operation whose cluster was deleted while it was in progress.
	ReasonClusterDeleted = "ClusterDeleted"
)

// ClusterState is what there is of an operation's cluster where it has no RKEControlPlane.
type ClusterState int

// The states.
const (
	// ClusterNotFound means that there is no Cluster of the name.
	ClusterNotFound ClusterState = iota
	// ClusterCreating means that the Cluster is there, and its RKEControlPlane will be, or is gone.
	ClusterCreating
	// ClusterImported means that the cluster was created elsewhere.
	ClusterImported
	// ClusterOfOtherProvider means that the control plane is of another provider.
	ClusterOfOtherProvider
)

// DecideUnmanaged sets the status of an operation that has not ended, and that no RKEControlPlane carries out. since is as in Inputs. It
// returns when to decide again; 0 for when something changes.
func DecideUnmanaged(op operationv1.Operation, cluster ClusterState, now, since time.Time) time.Duration {
	e := newEngine(op, Inputs{Now: now, Since: since})
	e.status.ObservedGeneration = op.GetGeneration()
	name := e.spec.ClusterRef.Name
	switch {
	case e.spec.Cancel:
		e.end(operationv1.PhaseCanceled, string(operationv1.PhaseCanceled), "The operation was canceled")
	case e.status.Phase == operationv1.PhaseInProgress && cluster == ClusterCreating:
		e.end(operationv1.PhaseFailed, ReasonClusterDeleted, fmt.Sprintf("The RKEControlPlane of Cluster %s was deleted while the operation "+
			"was in progress", name))
	case e.status.Phase == operationv1.PhaseInProgress:
		e.end(operationv1.PhaseFailed, ReasonClusterDeleted, fmt.Sprintf("Cluster %s was deleted while the operation was in progress", name))
	case cluster == ClusterImported:
		e.end(operationv1.PhaseFailed, ReasonClusterImported, fmt.Sprintf("Cluster %s is imported: the hub does not manage its machines; "+
			"use the tools of its distribution on them", name))
	case cluster == ClusterOfOtherProvider:
		e.end(operationv1.PhaseFailed, ReasonControlPlaneNotSupported, fmt.Sprintf("The control plane of Cluster %s is not an RKEControlPlane",
			name))
	case cluster == ClusterCreating:
		e.wait(ReasonWaitingForCluster, fmt.Sprintf("Waiting for the RKEControlPlane of Cluster %s to be created", name))
	default:
		e.wait(ReasonWaitingForCluster, fmt.Sprintf("Waiting for Cluster %s to be created", name))
	}
	e.pause()
	return max(e.out.Again, 0)
}
