package machinerequest

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/informers"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/ssa"
)

// Reconcile creates the Machine that a request asks for, and writes to the request which it is or why it was refused. A request is deleted
// after requestLifetime in any case.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	request := &corev1.Secret{}
	if err := r.requests.Get(ctx, req.NamespacedName, request); err != nil {
		if apierrors.IsNotFound(err) {
			r.requested.Delete(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !request.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	left := r.timeLeft(ctx, request)
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
	var waiting pending
	switch {
	case errors.Is(err, errWait):
		return result, nil
	case errors.Is(err, errAgain):
		return ctrl.Result{RequeueAfter: min(left, againAfter)}, nil
	case errors.As(err, &waiting):
		return ctrl.Result{RequeueAfter: min(left, againAfter)}, r.say(ctx, request, waiting.text)
	case errors.As(err, &refused):
		ctrl.LoggerFrom(ctx).Info("Refused machine", "reason", refused.text)
		return result, r.answer(ctx, request, func(meta *metav1.ObjectMeta) {
			metav1.SetMetaDataAnnotation(meta, rkev1.MachineRequestErrorAnnotation, refused.text)
		})
	case err != nil:
		return ctrl.Result{}, errors.Join(err, r.explain(ctx, request, err))
	}
	ctrl.LoggerFrom(ctx).Info("Registered machine", "Machine", client.ObjectKeyFromObject(machine))
	return result, r.answer(ctx, request, func(meta *metav1.ObjectMeta) {
		metav1.SetMetaDataLabel(meta, rkev1.MachineNamespaceLabel, machine.Namespace)
		metav1.SetMetaDataLabel(meta, rkev1.MachineNameLabel, machine.Name)
	})
}

// requestSight is when a machine request was seen first.
type requestSight struct {
	uid types.UID
	at  time.Time
}

// timeLeft is how long a request may still wait. Its time begins when this hub first sees it: it was dated by the clock of the API server,
// and with one that is a minute behind no machine could register.
func (r *Reconciler) timeLeft(ctx context.Context, request *corev1.Secret) time.Duration {
	if r.Clock.Since(request.CreationTimestamp.Time) >= requestLifetime+maxSkew {
		ctrl.LoggerFrom(ctx).Info("Deleting a machine request that nobody waits for; if machines cannot register, compare the clocks of the "+
			"hub and of the API server", "created", request.CreationTimestamp.UTC(), "clock", r.Clock.Now().UTC())
		return 0
	}
	key, now := client.ObjectKeyFromObject(request), requestSight{request.UID, r.Clock.Now()}
	known, _ := r.requested.LoadOrStore(key, now)
	first, _ := known.(requestSight)
	if first.uid != request.UID {
		r.requested.Store(key, now)
		first = now
	}
	return requestLifetime - r.Clock.Since(first.at)
}

// reconcileRequest finds or creates the Machine.
func (r *Reconciler) reconcileRequest(ctx context.Context, secret *corev1.Secret) (*clusterv1.Machine, error) {
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
	created, err := newMachine(cluster, name, request)
	if err != nil {
		return nil, err
	}
	if err := r.create(ctx, cluster, request, created.bootstrap, created.infra, created.machine); err != nil {
		return nil, err
	}
	return created.machine, r.setOwner(ctx, created)
}

// setOwner makes the Machine the owner of the other two objects. Cluster API does that too, but seconds later, and the machine waits for
// what is created for its RKEBootstrap after that.
func (r *Reconciler) setOwner(ctx context.Context, o machineObjects) error {
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
		// A conflict means that the object is not the one that was just created.
		if err := ssa.Apply(ctx, r.Client, fieldOwner, object); err != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("setting Machine %s as the owner: %w", o.machine.Name, err)
		}
	}
	return nil
}

// clusterOf returns the Cluster API Cluster that belongs to the namespace of a management Cluster.
func (r *Reconciler) clusterOf(ctx context.Context, namespace string) (*clusterv1.Cluster, error) {
	management := &managementv3.Cluster{}
	found, err := objects.Get(ctx, r.Client, client.ObjectKey{Name: namespace}, management)
	if err == nil && !found {
		// The gateway of another replica has found it, or the machine would have no request.
		found, err = objects.Get(ctx, r.Live, client.ObjectKey{Name: namespace}, management)
	}
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, refuse("cluster %s does not exist", namespace)
	}
	owned, err := ownership.ClusterOf(ctx, r.Client, management)
	if err == nil && (owned == nil || owned.Provisioning == nil) {
		// A refusal is final for the machine, and the cache may lag behind the management Cluster.
		owned, err = ownership.ClusterOf(ctx, r.Live, management)
	}
	if err != nil {
		return nil, err
	}
	if owned == nil || owned.Provisioning == nil {
		return nil, refuse("no Cluster belongs to management Cluster %s", namespace)
	}
	return r.capiCluster(ctx, owned.Provisioning)
}

// capiCluster returns the Cluster API Cluster that was made for a Cluster, once it takes machines. One that was made for something else
// gets no machines through the Cluster of its name.
func (r *Reconciler) capiCluster(ctx context.Context, cluster *provisioningv1.Cluster) (*clusterv1.Cluster, error) {
	key := client.ObjectKeyFromObject(cluster)
	capi, taken, err := ownership.ClusterAPI(ctx, r.Client, cluster)
	if err == nil && taken != nil {
		// As above: the cache may still have an earlier Cluster of that name.
		capi, taken, err = ownership.ClusterAPI(ctx, r.Live, cluster)
	}
	switch {
	case !cluster.DeletionTimestamp.IsZero() || capi != nil && !capi.DeletionTimestamp.IsZero():
		return nil, refuse("cluster %s is being deleted", key)
	case err != nil:
		return nil, err
	case taken != nil:
		return nil, refuse("cluster %s takes no machines: %s", key, taken.Message)
	case capi == nil:
		return nil, errWait
	case annotations.HasPaused(cluster) || annotations.HasPaused(capi) || ptr.Deref(capi.Spec.Paused, false):
		// The gateway lets machines of a paused cluster try again, and has seen this one unpaused.
		return nil, errWait
	}
	return capi, nil
}

// knownMachine returns the Machine of a machine that registered before, by its present name, or by its ID under another name; nil for a new
// machine.
func (r *Reconciler) knownMachine(
	ctx context.Context, cluster *clusterv1.Cluster, name string, request machineRequest,
) (*clusterv1.Machine, error) {
	machine := &clusterv1.Machine{}
	found, err := objects.Get(ctx, r.Live, client.ObjectKey{Namespace: cluster.Namespace, Name: name}, machine)
	if err != nil {
		return nil, err
	}
	if !found {
		if machine, err = r.machineByID(ctx, cluster, request.id); machine == nil || err != nil {
			return nil, err
		}
	}
	if machine.Spec.ClusterName != cluster.Name {
		return nil, refuse("this machine is already in cluster %s; delete its Machine there and uninstall the agent first",
			machine.Spec.ClusterName)
	}
	if !machine.DeletionTimestamp.IsZero() {
		return nil, pending{fmt.Sprintf("Machine %s of this machine is being deleted", machine.Name)}
	}
	bootstrap := &rkev1.RKEBootstrap{}
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name},
		bootstrap); err != nil {
		return nil, fmt.Errorf("reading the RKEBootstrap of the Machine %s: %w", machine.Name, err)
	}
	if refusal := ownership.OfMachine(bootstrap, machine); refusal != nil {
		return nil, refuse("%s", refusal.Message)
	}
	return machine, proven(bootstrap, request)
}

// machineByID finds a Machine that has the ID under another name: another system has created it, and Machines of this hub are found by
// their names. That there is none is believed of the cache if it has come to the time at which this hub has seen the Cluster, since a
// cluster that is moved is unpaused after its Machines exist: a list past the cache reads all Machines of the namespace, for each machine
// that registers. A hub that is so busy that its cache is behind lists for a tenth of the time, and otherwise waits for the cache.
func (r *Reconciler) machineByID(ctx context.Context, cluster *clusterv1.Cluster, id string) (*clusterv1.Machine, error) {
	believed := r.reached(ctx, cluster)
	listed, err := listByID(ctx, r.Client, cluster, id)
	if err != nil {
		return nil, err
	}
	if listed != nil {
		machine := &clusterv1.Machine{}
		found, err := objects.Get(ctx, r.Live, client.ObjectKeyFromObject(listed), machine)
		if err != nil {
			return nil, err
		}
		if found {
			return machine, nil
		}
	}
	if believed && listed == nil {
		return nil, nil
	}
	wait, err := r.lists.Do(func() (err error) {
		listed, err = listByID(ctx, r.Live, cluster, id)
		return err
	})
	if wait > 0 {
		return nil, errAgain
	}
	return listed, err
}

// sight is when a Cluster was seen first.
type sight struct {
	uid     types.UID
	version string
}

// reached reports whether the cache is known to have all Machines that were there when this hub saw the Cluster, which is not paused.
func (r *Reconciler) reached(ctx context.Context, cluster *clusterv1.Cluster) bool {
	if r.Informers == nil {
		return false
	}
	now := sight{cluster.UID, cluster.ResourceVersion}
	first, seen := r.seen.LoadOrStore(client.ObjectKeyFromObject(cluster), now)
	if seen && first.(sight).uid != cluster.UID {
		r.seen.Store(client.ObjectKeyFromObject(cluster), now)
		first = now
	}
	reached, known := informers.Reached(ctx, r.Informers, &clusterv1.Machine{}, first.(sight).version)
	return reached && known
}

// listByID returns nil where there is no Machine with the ID. Of several the cluster's own comes first.
func listByID(ctx context.Context, from client.Reader, cluster *clusterv1.Cluster, id string) (*clusterv1.Machine, error) {
	for _, value := range []string{rkev1.MachineIDLabelValue(id), id} {
		if len(validation.IsValidLabelValue(value)) > 0 {
			continue
		}
		var machines clusterv1.MachineList
		err := from.List(ctx, &machines, client.InNamespace(cluster.Namespace), client.MatchingLabels{rkev1.MachineIDLabel: value})
		if err != nil {
			return nil, fmt.Errorf("looking for the machine by its ID: %w", err)
		}
		slices.SortFunc(machines.Items, func(a, b clusterv1.Machine) int {
			own := func(m clusterv1.Machine) int {
				if m.Spec.ClusterName == cluster.Name {
					return 0
				}
				return 1
			}
			return cmp.Or(cmp.Compare(own(a), own(b)), cmp.Compare(a.Name, b.Name))
		})
		if len(machines.Items) > 0 {
			return &machines.Items[0], nil
		}
	}
	return nil, nil
}

// proven refuses a machine that does not have the secret of the machine that registered first under this ID.
func proven(bootstrap *rkev1.RKEBootstrap, request machineRequest) error {
	stored := bootstrap.Annotations[rkev1.MachineSecretHashAnnotation]
	if subtle.ConstantTimeCompare([]byte(stored), []byte(request.secretHash)) != 1 {
		return refuse("a machine with the same ID is registered already, and this machine could not prove that it is the same one; " +
			"delete the old Machine first, or give this machine a new ID")
	}
	return nil
}

// create creates the objects in order, the Machine last, since Cluster API reads the other two as soon as it sees it. Objects that exist
// must have been created for the same machine.
func (r *Reconciler) create(ctx context.Context, cluster *clusterv1.Cluster, request machineRequest, all ...client.Object) error {
	for _, object := range all {
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
		if !object.GetDeletionTimestamp().IsZero() {
			return pending{fmt.Sprintf("objects of an earlier registration of this machine (%s) are being deleted", object.GetName())}
		}
		if of := object.GetLabels()[clusterv1.ClusterNameLabel]; of != cluster.Name {
			return refuse("objects of an earlier registration of this machine (%s) are left from the cluster %s; delete them first",
				object.GetName(), of)
		}
		if bootstrap, ok := object.(*rkev1.RKEBootstrap); ok {
			if err := proven(bootstrap, request); err != nil {
				return err
			}
		}
	}
	return nil
}
