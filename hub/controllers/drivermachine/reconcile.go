package drivermachine

import (
	"cmp"
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
	"sigs.k8s.io/controller-runtime/pkg/event"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/finalizers"

	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/message"
)

// machines reconciles the machines of one driver.
type machines struct {
	Client       client.Client
	clusterCache clustercache.ClusterCache
	drivers      nodedriver.Drivers
	operations   *operations
	now          func() time.Time
	// restored is that of the Reconciler.
	restored time.Time

	driver, nodeDriver string
	kind               runtimeschema.GroupVersionKind
	controller         controller.Controller
	events             chan event.GenericEvent
	byMachine          machineIndex
	// stopped is true while the kind is deleted with its NodeDriver.
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
	// noCredential is why a removal has no cloud credential but that of the creation; nil if it has one, or the machine names none.
	noCredential *cause.Cause
	// running is what the driver was doing when the state was read; nil if nothing.
	running *operation
	// nodeUnknown is true where the cluster could not be asked.
	nodeUnknown bool
	node        *corev1.Node
	paused      bool
	// gone is true once a machine that is being deleted needs its finalizer no more.
	gone bool
	// incomplete is true of a reconcile that has ended with an error, and has found nothing that it could show.
	incomplete bool
}

// Reconcile writes the machine once at the end.
func (m *machines) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, reterr error) {
	if m.stopped.Load() {
		return ctrl.Result{}, nil
	}
	s := &scope{object: object(m.kind)}
	if err := m.Client.Get(ctx, req.NamespacedName, s.object); err != nil {
		if err = client.IgnoreNotFound(err); err == nil {
			m.byMachine.forget(req.NamespacedName)
		}
		return ctrl.Result{}, err
	}
	before := s.object.DeepCopy()
	if err := m.readOwners(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		s.show(reterr)
		err := m.write(ctx, before, s)
		if err == nil && s.gone {
			err = m.deleteState(ctx, s.stored)
		}
		reterr = kerrors.NewAggregate([]error{reterr, err})
	}()
	s.paused = annotations.HasPaused(s.object) || s.cluster != nil && annotations.IsPaused(s.cluster, s.object)
	if s.paused {
		return ctrl.Result{}, nil
	}
	// Before the state: an operation is forgotten after it has written its outcome, so that a state that is read later has the outcome of
	// all that do not run. In the other order, a machine that was created in between would be created again.
	s.running = m.operations.get(s.object.GetUID())
	var unusable *cause.Cause
	var err error
	if s.stored, unusable, err = m.readState(ctx, s.object); err != nil {
		return ctrl.Result{}, err
	}
	if !s.object.GetDeletionTimestamp().IsZero() {
		return m.reconcileDelete(ctx, s, unusable)
	}
	if unusable != nil {
		s.created = unusable
		return ctrl.Result{RequeueAfter: retryInterval}, nil
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

// reasonError is that of a machine that could not be looked at.
const reasonError = "Error"

// show has the conditions show the error of a reconcile that has found nothing else: what they said before may be over, and a deletion
// would seem to wait for nothing. Those of a machine that has joined its cluster stay.
func (s *scope) show(err error) {
	if err == nil || s.created != nil || s.found != nil || s.removal != nil {
		return
	}
	failed := cause.New(reasonError, "Reconciling the machine failed, retrying: %s", message.Bound(err.Error(), message.MaxError))
	switch deleting := !s.object.GetDeletionTimestamp().IsZero(); {
	case apierrors.IsRace(err) || apierrors.IsEnding(err) || s.stored == nil || hasJoined(s) && !deleting:
		s.incomplete = true
	case deleting:
		s.removal = failed
	case s.stored.progress.Phase == phaseCreated:
		s.found, s.nodeUnknown = failed, true
	default:
		s.created = failed
	}
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
	failed := m.operations.failure(s.object.GetUID(), false)
	switch {
	case p.Phase == phaseCreated:
		return ctrl.Result{}, nil
	case s.running != nil:
		s.created = creating(max(1, p.counted()), p.LastError, s.running.queued.Load())
		return ctrl.Result{}, nil
	case hasJoined(s):
		return m.adopt(ctx, s)
	case p.Final || p.counted() >= maxAttempts && p.Error != "":
		s.created = cause.New("CreateFailed", "Creating the machine failed for good (attempt %d of %d): %s; correct the machine "+
			"configuration or the cloud credential, then delete the Machine", p.counted(), maxAttempts, p.Error)
		return ctrl.Result{}, nil
	case s.object.GetCreationTimestamp().Time.Before(m.restored):
		s.created = cause.New("HubRestored", "The hub was restored from a backup in which this machine was not created yet. It may have been "+
			"created since, and run: look for %s at its cloud and in the cluster, then delete the Machine, which removes it, and replaces it "+
			"where a pool needs one", nodedriver.InstanceName(s.object.GetName()))
		return ctrl.Result{}, nil
	case p.Error != "" && p.pause(m.now()) > 0:
		attempt := ""
		if n := p.counted(); n > 0 { // none was made where the driver could not be downloaded
			attempt = fmt.Sprintf("attempt %d of %d, ", n, maxAttempts)
		}
		s.created = cause.New("CreateError", "Creating the machine failed (%sthe next attempt at %s): %s", attempt,
			p.NotBefore.UTC().Format(time.RFC3339), p.Error)
		return ctrl.Result{RequeueAfter: p.pause(m.now())}, nil
	case failed != nil && failed.notBefore.After(m.now()):
		s.created = cause.New("CreateError", "Creating the machine could not begin or be recorded (the next attempt at %s): %s",
			failed.notBefore.UTC().Format(time.RFC3339), message.Bound(failed.err.Error(), message.MaxError))
		return ctrl.Result{RequeueAfter: failed.notBefore.Sub(m.now())}, nil
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
	s.created = creating(p.counted()+1, cmp.Or(p.Error, p.LastError), false)
	m.startCreate(s.object.DeepCopy(), s.machine.DeepCopy(), work)
	return ctrl.Result{}, nil
}

// queuedReason is that of a machine whose node driver waits for those of other machines.
const queuedReason = "Queued"

// creating is what a machine waits for that its node driver creates, or is to create; earlier is why the attempt before has failed.
func creating(attempt int, earlier string, queued bool) *cause.Cause {
	reason, text := "Creating", "The node driver is creating the machine"
	if queued {
		reason, text = queuedReason, "Waiting for the node drivers of other machines to end, of which a limited number runs at a time"
	}
	if earlier != "" {
		earlier = "; the attempt before failed: " + earlier
	}
	return cause.New(reason, "%s (attempt %d of %d)%s", text, attempt, maxAttempts, earlier)
}

// retryInterval is after which a missing driver, credential or state is looked for again: Secrets are not watched.
const retryInterval = 30 * time.Second
