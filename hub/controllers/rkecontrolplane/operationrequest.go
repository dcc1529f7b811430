package rkecontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/objects"
)

// operationRequest is a field of the specification that asks for an operation by another generation.
type operationRequest struct {
	// name is that of the operation, after the Cluster's and before the generation.
	name string
	// label, on the operation, is the generation that asked for it. The annotation of that name, on the RKEControlPlane, is one that was done
	// and of which there is no operation: by Rancher, for instance.
	label string
	// wanted is the generation that is asked for; 0 for none.
	wanted func(rkev1.RKEControlPlaneSpec) int64
	// observed is the generation of the last operation, and whether there was one. It is the last that was asked for, or with afterwards set
	// the last that was done.
	observed   func(rkev1.RKEControlPlaneStatus) (int64, bool)
	afterwards bool
	// create returns the operation with the fields of its own kind.
	create func(rkev1.RKEControlPlaneSpec) operationv1.Operation
	// report writes the generation and how far the operation is into the status.
	report func(*rkev1.RKEControlPlaneStatus, rkev1.RKEControlPlaneSpec, operationv1.Status)
}

// snapshotPhases are the values of status.etcdSnapshotCreatePhase, as Rancher has them.
var snapshotPhases = map[operationv1.Phase]string{
	operationv1.PhaseInProgress: "Started", operationv1.PhaseSucceeded: "Finished", operationv1.PhaseFailed: "Failed",
	operationv1.PhaseCanceled: "Failed",
}

var operationRequests = []operationRequest{{
	name: "snapshot", label: "rke.cattle.io/etcd-snapshot-create",
	wanted: func(spec rkev1.RKEControlPlaneSpec) int64 {
		if spec.ETCDSnapshotCreate == nil {
			return 0
		}
		return int64(spec.ETCDSnapshotCreate.Generation)
	},
	observed: func(status rkev1.RKEControlPlaneStatus) (int64, bool) {
		if status.ETCDSnapshotCreate == nil {
			return 0, false
		}
		return int64(status.ETCDSnapshotCreate.Generation), true
	},
	create: func(rkev1.RKEControlPlaneSpec) operationv1.Operation { return &operationv1.ETCDSnapshotSave{} },
	report: func(status *rkev1.RKEControlPlaneStatus, spec rkev1.RKEControlPlaneSpec, op operationv1.Status) {
		status.ETCDSnapshotCreate, status.ETCDSnapshotCreatePhase = spec.ETCDSnapshotCreate.DeepCopy(), snapshotPhases[op.Phase]
	},
}, restoreRequest, {
	name: "certificates", label: "rke.cattle.io/rotate-certificates", afterwards: true,
	wanted: func(spec rkev1.RKEControlPlaneSpec) int64 {
		if spec.RotateCertificates == nil {
			return 0
		}
		return spec.RotateCertificates.Generation
	},
	observed: func(status rkev1.RKEControlPlaneStatus) (int64, bool) {
		return status.CertificateRotationGeneration, status.CertificateRotationGeneration != 0
	},
	create: func(spec rkev1.RKEControlPlaneSpec) operationv1.Operation {
		op := &operationv1.CertificateRotation{}
		for _, service := range spec.RotateCertificates.Services {
			op.Spec.Services = append(op.Spec.Services, operationv1.CertificateService(service))
		}
		return op
	},
	report: func(status *rkev1.RKEControlPlaneStatus, spec rkev1.RKEControlPlaneSpec, op operationv1.Status) {
		if op.Phase == operationv1.PhaseSucceeded {
			status.CertificateRotationGeneration = spec.RotateCertificates.Generation
		}
	},
}, encryptionKeyRequest}

// ensureRequested creates the operations that the specification asks for, and reports how far they are. A generation that the status knows
// was asked for before: its operation is not created again. It returns those that were created, which the cache may not have: a restore
// holds back what changed in the specification with it.
func (r *Reconciler) ensureRequested(ctx context.Context, s *scope, operations []operationv1.Operation) (
	created []operationv1.Operation, _ error) {
	for _, request := range operationRequests {
		op, err := r.ensureRequest(ctx, s, request, operations)
		if err != nil {
			return nil, err
		}
		if op != nil {
			created = append(created, op)
		}
	}
	return created, nil
}

func (r *Reconciler) ensureRequest(ctx context.Context, s *scope, request operationRequest,
	operations []operationv1.Operation) (operationv1.Operation, error) {
	spec, status := s.controlPlane.Spec, &s.controlPlane.Status
	next, i := request.next(s.controlPlane, operations)
	switch next {
	case requestDone:
		if wanted := request.wanted(spec); wanted != 0 && i < 0 {
			// A move leaves the status behind.
			metav1.SetMetaDataAnnotation(&s.controlPlane.ObjectMeta, request.label, strconv.FormatInt(wanted, 10))
		}
		return nil, nil
	case requestExists:
		request.report(status, spec, reportedStatus(operations[i]))
		if restore, is := operations[i].(*operationv1.ETCDSnapshotRestore); is {
			status.ETCDSnapshotRestore.Name = restore.Spec.Args.Name // the specification may name another one with the same generation by now
		}
		return nil, nil
	case requestReplaces:
		if request.label == restoreLabel {
			s.waitFor(rollout.ReasonWaitingForOperation, "Waiting for ETCDSnapshotRestore "+operations[i].GetName()+
				" to be replaced by another one of the same generation")
		}
		return nil, objects.Delete(ctx, r.Client, operations[i], client.Preconditions{UID: new(operations[i].GetUID())})
	}
	generation := strconv.FormatInt(request.wanted(spec), 10)
	op := request.create(spec)
	op.SetName(rkev1.SafeConcat(s.cluster.Name, request.name, generation))
	op.SetLabels(map[string]string{request.label: generation})
	op.CommonSpec().TTL = -1
	if err := r.createOperation(ctx, s, op); err != nil {
		return nil, err
	}
	request.report(status, spec, *op.CommonStatus())
	return op, nil
}

// nextOfRequest is what follows from a request.
type nextOfRequest int

const (
	// requestDone means that nothing is asked for, or that its operation was created before and does not exist any more.
	requestDone nextOfRequest = iota
	// requestExists means that the operation exists.
	requestExists
	// requestReplaces means that the generation was used before the last one, so that its operation is deleted first.
	requestReplaces
	// requestCreates means that the operation is to be created.
	requestCreates
)

// next is what follows from the request in the specification of a control plane, and the index of its operation among those of the cluster;
// -1 for none.
func (o operationRequest) next(controlPlane *rkev1.RKEControlPlane, operations []operationv1.Operation) (nextOfRequest, int) {
	wanted := o.wanted(controlPlane.Spec)
	if wanted == 0 {
		return requestDone, -1
	}
	generation := strconv.FormatInt(wanted, 10)
	i := requestedBy(operations, o.label, generation)
	observed, any := o.observed(controlPlane.Status)
	if i < 0 && !any && controlPlane.Annotations[o.label] == generation {
		return requestDone, -1
	}
	current := !any || observed == wanted
	if o.afterwards && i >= 0 {
		current = observed == wanted || lastRequested(operations[i:], o.label)
	}
	// One that has not ended was just created: the status in the cache may be older.
	current = current || i >= 0 && !reportedStatus(operations[i]).Phase.Ended()
	switch {
	case i >= 0 && current:
		return requestExists, i
	case any && observed == wanted:
		return requestDone, i
	case i >= 0:
		return requestReplaces, i
	}
	return requestCreates, i
}

// requestedBy is the index of the operation that a generation has asked for; -1 for none.
func requestedBy(operations []operationv1.Operation, label, generation string) int {
	return slices.IndexFunc(operations, func(op operationv1.Operation) bool { return op.GetLabels()[label] == generation })
}

// createOperation creates an operation on the cluster.
func (r *Reconciler) createOperation(ctx context.Context, s *scope, op operationv1.Operation) error {
	labels := op.GetLabels()
	setOrDelete(&labels, rkev1.ClusterNameLabel, s.cluster.Name)
	op.SetLabels(labels)
	op.SetNamespace(s.controlPlane.Namespace)
	op.SetOwnerReferences([]metav1.OwnerReference{s.clusterOwner()})
	op.CommonSpec().ClusterRef = operationv1.ClusterReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster",
		Name: s.cluster.Name}
	err := r.Client.Create(ctx, op, fieldOwner)
	if apierrors.IsAlreadyExists(err) { // the cache may not have it yet
		err = r.Live.Get(ctx, client.ObjectKeyFromObject(op), op)
	}
	if err != nil {
		return fmt.Errorf("creating %s %s: %w", operationv1.Kind(op), op.GetName(), err)
	}
	return nil
}

// lastRequested reports whether the first of the operations, which are in the order of their creation, is the last that a generation has
// asked for, and was not done for a generation before the last.
func lastRequested(operations []operationv1.Operation, label string) bool {
	return !slices.ContainsFunc(operations[1:], func(op operationv1.Operation) bool { return op.GetLabels()[label] != "" })
}

// reportedStatus is the status of an operation, with the phase in which it ended also where it was lost.
func reportedStatus(op operationv1.Operation) operationv1.Status {
	status := *op.CommonStatus()
	if !status.Phase.Ended() {
		status.Phase = cmp.Or(operationv1.Phase(op.GetAnnotations()[operationv1.EndedAnnotation]), status.Phase)
	}
	return status
}

// clusterOwner makes an operation go with its Cluster.
func (s *scope) clusterOwner() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: s.cluster.Name, UID: s.cluster.UID}
}
