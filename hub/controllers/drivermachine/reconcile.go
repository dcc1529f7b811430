package drivermachine

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/finalizers"

	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/util/cause"
)

// ForceRemoveAnnotation, on a machine that is being deleted, gives up on having its driver remove it: what is left of it at its cloud is
// for its owner to delete.
const ForceRemoveAnnotation = "provisioning.cattle.io/force-machine-remove"

// machines reconciles the machines of one driver.
type machines struct {
	Client       client.Client
	clusterCache clustercache.ClusterCache
	drivers      nodedriver.Drivers
	operations   *operations
	now          func() time.Time

	driver, nodeDriver string
	kind               runtimeschema.GroupVersionKind
	controller         controller.Controller
	events             chan event.GenericEvent
	byMachine          machineIndex
	// stopped is true once the kind was deleted with its NodeDriver: reading it would wait for ever.
	stopped atomic.Bool
}

// scope is what one reconcile has read and found.
type scope struct {
	object *unstructured.Unstructured
	// machine and cluster are nil until Cluster API has set the owner reference.
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster
	stored  *stored
	// created, found and removal are what the conditions Created, NodeFound and Deleted wait for.
	created, found, removal *cause.Cause
	// running is what the driver was doing when the state was read; nil if nothing.
	running *operation
	// nodeUnknown is true where the cluster could not be asked.
	nodeUnknown bool
	node        *corev1.Node
	paused      bool
}

// Reconcile writes the machine once at the end.
func (m *machines) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, reterr error) {
	if m.stopped.Load() {
		return ctrl.Result{}, nil
	}
	s := &scope{object: object(m.kind)}
	if err := m.Client.Get(ctx, req.NamespacedName, s.object); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := s.object.DeepCopy()
	if err := m.readOwners(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		reterr = kerrors.NewAggregate([]error{reterr, m.write(ctx, before, s)})
	}()
	s.paused = annotations.HasPaused(s.object) || s.cluster != nil && annotations.IsPaused(s.cluster, s.object)
	if s.paused {
		return ctrl.Result{}, nil
	}
	// Before the state: an operation is forgotten after it has written its outcome, so that a state that is read later has the outcome of
	// all that do not run. In the other order, a machine that was created in between would be created again.
	s.running = m.operations.get(s.object.GetUID())
	var err error
	if s.stored, s.created, err = m.readState(ctx, s.object); err != nil || s.created != nil {
		return ctrl.Result{}, err
	}
	if !s.object.GetDeletionTimestamp().IsZero() {
		return m.reconcileDelete(ctx, s)
	}
	if s.machine == nil {
		s.created = cause.New("WaitingForMachine", "Waiting for a Machine of cluster.x-k8s.io to refer to this %s", m.kind.Kind)
		return ctrl.Result{}, nil
	}
	if _, err := finalizers.EnsureFinalizer(ctx, m.Client, s.object, Finalizer); err != nil {
		return ctrl.Result{}, err
	}
	before = s.object.DeepCopy()
	result, err = m.reconcileCreate(ctx, s)
	if err != nil || s.created != nil {
		return result, err
	}
	if err := m.reportAddresses(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	return result, m.reconcileNode(ctx, s)
}

// readOwners reads the Machine that refers to the object, and its Cluster. An owner reference alone proves nothing.
func (m *machines) readOwners(ctx context.Context, s *scope) error {
	machine, err := util.GetOwnerMachine(ctx, m.Client, metav1.ObjectMeta{
		Namespace: s.object.GetNamespace(), OwnerReferences: s.object.GetOwnerReferences(),
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the Machine: %w", err)
	}
	if err != nil || machine == nil || !slices.ContainsFunc(s.object.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.UID == machine.UID
	}) {
		return nil
	}
	ref := machine.Spec.InfrastructureRef
	if ref.APIGroup != m.kind.Group || ref.Kind != m.kind.Kind || ref.Name != s.object.GetName() {
		return nil
	}
	s.machine = machine
	m.byMachine.set(string(machine.UID), client.ObjectKeyFromObject(s.object))
	cluster, err := util.GetClusterByName(ctx, m.Client, machine.Namespace, machine.Spec.ClusterName)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the Cluster: %w", err)
	}
	if err == nil {
		s.cluster = cluster
	}
	return nil
}

// reconcileCreate has the driver create the machine; created says what that waits for.
func (m *machines) reconcileCreate(ctx context.Context, s *scope) (ctrl.Result, error) {
	p := s.stored.progress
	switch {
	case p.Phase == phaseCreated:
		return ctrl.Result{}, nil
	case s.running != nil:
		s.created = cause.New("Creating", "The node driver is creating the machine (attempt %d of %d)", max(1, p.Attempt), maxAttempts)
		return ctrl.Result{}, nil
	case p.Final || p.Attempt >= maxAttempts && p.Error != "":
		s.created = cause.New("CreateFailed", "Creating the machine failed for good (attempt %d of %d): %s; correct the machine "+
			"configuration or the cloud credential, then delete the Machine", p.Attempt, maxAttempts, p.Error)
		return ctrl.Result{}, nil
	case p.Error != "" && p.NotBefore.After(m.now()):
		s.created = cause.New("CreateError", "Creating the machine failed (attempt %d of %d, the next one at %s): %s", p.Attempt, maxAttempts,
			p.NotBefore.UTC().Format(time.RFC3339), p.Error)
		return ctrl.Result{RequeueAfter: p.NotBefore.Sub(m.now())}, nil
	case s.cluster == nil || !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false):
		s.created = cause.New("WaitingForClusterInfrastructure", "Waiting for the infrastructure of Cluster %s to be provisioned",
			s.machine.Spec.ClusterName)
		return ctrl.Result{}, nil
	case s.machine.Spec.Bootstrap.DataSecretName == nil:
		s.created = cause.New("WaitingForBootstrapData", "Waiting for the bootstrap data of Machine %s", s.machine.Name)
		return ctrl.Result{}, nil
	}
	work, fault, err := m.prepare(ctx, s, false)
	if err != nil || fault != nil {
		s.created = fault
		return ctrl.Result{RequeueAfter: retryInterval}, err
	}
	s.created = cause.New("Creating", "The node driver is creating the machine (attempt %d of %d)", p.Attempt+1, maxAttempts)
	m.startCreate(s.object.DeepCopy(), work)
	return ctrl.Result{}, nil
}

// retryInterval is after which a missing driver or credential is looked for again: Secrets of other namespaces are not watched.
const retryInterval = 30 * time.Second

// reconcileDelete has the driver remove the machine; removal says what that waits for.
func (m *machines) reconcileDelete(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(s.object, Finalizer) {
		return ctrl.Result{}, nil
	}
	p := s.stored.progress
	if s.running != nil {
		if !s.running.removal {
			s.running.cancel()
		}
		s.removal = cause.New("Deleting", "Waiting for the node driver to end or to remove the machine")
		return ctrl.Result{}, nil
	}
	gone, err := m.isGone(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if gone {
		if err := m.removeState(ctx, s.stored); err != nil {
			return ctrl.Result{}, err
		}
		controllerutil.RemoveFinalizer(s.object, Finalizer)
		return ctrl.Result{}, nil
	}
	if p.RemovalAttempt > 0 && p.NotBefore.After(m.now()) {
		s.removal = cause.New("DeleteError", "Removing the machine failed (%d times, the next attempt at %s): %s; to give up on it, set the "+
			"annotation %s=true and delete the machine at its cloud by hand", p.RemovalAttempt, p.NotBefore.UTC().Format(time.RFC3339), p.Error,
			ForceRemoveAnnotation)
		return ctrl.Result{RequeueAfter: p.NotBefore.Sub(m.now())}, nil
	}
	work, fault, err := m.prepare(ctx, s, true)
	if err != nil || fault != nil {
		s.removal = fault
		return ctrl.Result{RequeueAfter: retryInterval}, err
	}
	s.removal = cause.New("Deleting", "The node driver is removing the machine")
	m.startRemove(s.object.DeepCopy(), work)
	return ctrl.Result{}, nil
}

// isGone reports whether the driver has nothing left to remove, or shall not.
func (m *machines) isGone(ctx context.Context, s *scope) (bool, error) {
	id := m.id(s)
	if s.object.GetAnnotations()[ForceRemoveAnnotation] == "true" {
		return true, m.drivers.Forget(ctx, id)
	}
	if s.stored.progress.Phase == phaseRemoved {
		return true, nil
	}
	if s.stored.state.Config() != nil {
		return false, nil
	}
	// Nothing was saved, unless by a Job whose state the hub has not read yet.
	outlived, err := m.drivers.Outlived(ctx, id)
	return !outlived, err
}
