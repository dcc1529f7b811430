package registration

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/apply"
	"github.com/drover-dev/drover/hub/ownership"
)

// refusal is an error that trying again does not cure; its text is for the owner of the machine.
type refusal struct{ text string }

func (r refusal) Error() string { return r.text }

func refuse(format string, args ...any) error { return refusal{fmt.Sprintf(format, args...)} }

// errWait is returned where a watch will bring the request back.
var errWait = errors.New("waiting for the cluster")

// Reconcile makes the Machine that a request asks for and says on the request which it is, or why there is none. A request goes when it is
// a minute old, whatever became of it.
func (r *requestReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	request := &corev1.Secret{}
	if err := r.requests.Get(ctx, req.NamespacedName, request); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !request.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	left := requestLifetime - r.Clock.Since(request.CreationTimestamp.Time)
	if left <= 0 {
		err := r.Client.Delete(ctx, request, client.Preconditions{UID: &request.UID})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return ctrl.Result{}, fmt.Errorf("deleting an old machine request: %w", err)
		}
		return ctrl.Result{}, nil
	}
	result := ctrl.Result{RequeueAfter: left}
	if request.Labels[rkev1.MachineNameLabel] != "" || request.Annotations[rkev1.MachineRequestErrorAnnotation] != "" {
		return result, nil
	}
	machine, err := r.reconcileRequest(ctx, request)
	var refused refusal
	switch {
	case errors.Is(err, errWait):
		return result, nil
	case errors.As(err, &refused):
		ctrl.LoggerFrom(ctx).Info("Refused a machine", "reason", refused.text)
		return result, r.answer(ctx, request, func(meta *metav1.ObjectMeta) {
			metav1.SetMetaDataAnnotation(meta, rkev1.MachineRequestErrorAnnotation, refused.text)
		})
	case err != nil:
		return ctrl.Result{}, err
	}
	ctrl.LoggerFrom(ctx).Info("Machine is known", "Machine", client.ObjectKeyFromObject(machine))
	return result, r.answer(ctx, request, func(meta *metav1.ObjectMeta) {
		metav1.SetMetaDataLabel(meta, rkev1.MachineNamespaceLabel, machine.Namespace)
		metav1.SetMetaDataLabel(meta, rkev1.MachineNameLabel, machine.Name)
	})
}

func (r *requestReconciler) answer(ctx context.Context, request *corev1.Secret, set func(*metav1.ObjectMeta)) error {
	changed := request.DeepCopy()
	set(&changed.ObjectMeta)
	if err := r.Client.Patch(ctx, changed, client.MergeFrom(request), fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("answering a machine request: %w", err)
	}
	return nil
}

// reconcileRequest finds or makes the Machine.
func (r *requestReconciler) reconcileRequest(ctx context.Context, secret *corev1.Secret) (*clusterv1.Machine, error) {
	request, err := parseRequest(secret.Data[rkev1.MachineRequestDataKey])
	if err != nil {
		return nil, refuse("%v", err)
	}
	cluster, err := r.clusterOf(ctx, secret.Namespace)
	if err != nil {
		return nil, err
	}
	name := rkev1.MachineRequestName(request.id)
	machine, err := r.knownMachine(ctx, cluster, name, request)
	if machine != nil || err != nil {
		return machine, err
	}
	objects, err := newMachine(cluster, name, request)
	if err != nil {
		return nil, err
	}
	if err := r.create(ctx, cluster, request, objects.bootstrap, objects.infra, objects.machine); err != nil {
		return nil, err
	}
	return objects.machine, r.own(ctx, objects)
}

// own makes the Machine the owner of the other two, as Cluster API does. That comes seconds later, and the machine waits for what is made
// of its RKEBootstrap then.
func (r *requestReconciler) own(ctx context.Context, o machineObjects) error {
	owned := func(object client.Object) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(o.machine, clusterv1.GroupVersion.WithKind("Machine"))},
		}
	}
	for _, object := range []client.Object{
		&rkev1.RKEBootstrap{ObjectMeta: owned(o.bootstrap)},
		&rkev1.CustomMachine{ObjectMeta: owned(o.infra)},
	} {
		// A conflict means that the object is not the one any more that was just made.
		if err := apply.Object(ctx, r.Client, fieldOwner, object); err != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("making Machine %s the owner: %w", o.machine.Name, err)
		}
	}
	return nil
}

// clusterOf finds the Cluster API Cluster that machines of a management Cluster's namespace join.
func (r *requestReconciler) clusterOf(ctx context.Context, namespace string) (*clusterv1.Cluster, error) {
	management := &managementv3.Cluster{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: namespace}, management); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, refuse("there is no cluster %s", namespace)
		}
		return nil, fmt.Errorf("reading the management Cluster %s: %w", namespace, err)
	}
	owned, err := ownership.ClusterOf(ctx, r.Client, management)
	if err != nil {
		return nil, err
	}
	if owned == nil || owned.Provisioning == nil {
		return nil, refuse("there is no Cluster behind %s", namespace)
	}
	key, cluster := owned.ObjectKey, owned.Provisioning
	capi := &clusterv1.Cluster{}
	err = r.Client.Get(ctx, key, capi)
	switch {
	case !cluster.DeletionTimestamp.IsZero() || err == nil && !capi.DeletionTimestamp.IsZero():
		return nil, refuse("the cluster %s is being deleted", key)
	case apierrors.IsNotFound(err):
		return nil, errWait
	case err != nil:
		return nil, fmt.Errorf("reading the Cluster API Cluster %s: %w", key, err)
	case annotations.HasPaused(cluster) || annotations.HasPaused(capi) || ptr.Deref(capi.Spec.Paused, false):
		return nil, refuse("the cluster %s is paused; no machine is added until it goes on", key)
	}
	return capi, nil
}

// knownMachine finds the Machine of a machine that registered before, under its present name or, by its ID, under another. It returns nil
// for a machine that is new.
func (r *requestReconciler) knownMachine(ctx context.Context, cluster *clusterv1.Cluster, name string, request machineRequest) (*clusterv1.Machine, error) {
	machine := &clusterv1.Machine{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: name}, machine)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the Machine %s: %w", name, err)
	}
	if err != nil {
		if machine, err = r.machineByID(ctx, cluster, request.id); machine == nil || err != nil {
			return nil, err
		}
	}
	if machine.Spec.ClusterName != cluster.Name {
		return nil, refuse("this machine is already in the cluster %s; remove it there and uninstall the agent first", machine.Spec.ClusterName)
	}
	if !machine.DeletionTimestamp.IsZero() {
		return nil, refuse("the Machine %s of this machine is still being deleted; try again later", machine.Name)
	}
	bootstrap := &rkev1.RKEBootstrap{}
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name}, bootstrap); err != nil {
		return nil, fmt.Errorf("reading the RKEBootstrap of the Machine %s: %w", machine.Name, err)
	}
	if refusal := ownership.OfMachine(bootstrap, machine); refusal != nil {
		return nil, refuse("%s", refusal.Message)
	}
	return machine, proven(bootstrap, request)
}

func (r *requestReconciler) machineByID(ctx context.Context, cluster *clusterv1.Cluster, id string) (*clusterv1.Machine, error) {
	for _, value := range []string{rkev1.MachineIDLabelValue(id), id} {
		if len(validation.IsValidLabelValue(value)) > 0 {
			continue
		}
		var machines clusterv1.MachineList
		err := r.Live.List(ctx, &machines, client.InNamespace(cluster.Namespace), client.MatchingLabels{rkev1.MachineIDLabel: value})
		if err != nil {
			return nil, fmt.Errorf("looking for the machine by its ID: %w", err)
		}
		if len(machines.Items) > 0 {
			return &machines.Items[0], nil
		}
	}
	return nil, nil
}

// proven refuses a machine that cannot show that it is the one that registered first.
func proven(bootstrap *rkev1.RKEBootstrap, request machineRequest) error {
	stored := bootstrap.Annotations[rkev1.MachineSecretHashAnnotation]
	if subtle.ConstantTimeCompare([]byte(stored), []byte(request.secretHash)) != 1 {
		return refuse("a machine with the same ID is registered already, and this machine could not show that it is the same one; " +
			"delete the old Machine first, or let this machine make a new ID")
	}
	return nil
}

// create makes the objects in order, the Machine last, since Cluster API asks for the other two as soon as it sees it. What is there
// already must have been made for the same machine.
func (r *requestReconciler) create(ctx context.Context, cluster *clusterv1.Cluster, request machineRequest, objects ...client.Object) error {
	for _, object := range objects {
		err := r.Client.Create(ctx, object, fieldOwner)
		if err == nil {
			continue
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating %T %s: %w", object, object.GetName(), err)
		}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return fmt.Errorf("reading %T %s: %w", object, object.GetName(), err)
		}
		if !object.GetDeletionTimestamp().IsZero() || object.GetLabels()[clusterv1.ClusterNameLabel] != cluster.Name {
			return refuse("what was left of an earlier registration of this machine is still being removed; try again later")
		}
		if bootstrap, ok := object.(*rkev1.RKEBootstrap); ok {
			if err := proven(bootstrap, request); err != nil {
				return err
			}
		}
	}
	return nil
}
