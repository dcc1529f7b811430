package drivermachine

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/capicontract"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/predicates"
)

const (
	// Finalizer keeps a machine until its driver has removed it.
	Finalizer = "rke-machine.cattle.io/machine"

	fieldOwner = client.FieldOwner("drover-drivermachine")
)

// Reconciler starts a controller of machines for each NodeDriver that is installed.
type Reconciler struct {
	// Client reads from the cache and writes; SetupWithManager sets it.
	Client client.Client
	// ClusterCache holds the connections to the clusters. ClusterCache and Drivers are required.
	ClusterCache clustercache.ClusterCache
	Drivers      nodedriver.Drivers
	// Restored is when the hub was restored from a backup; zero if it was not.
	Restored time.Time

	mgr     ctrl.Manager
	options controller.Options
	mutex   sync.Mutex
	// started are the drivers that have, or had, a controller, by their name.
	started    map[string]*machines
	operations *operations
}

// SetupWithManager registers the controller of NodeDrivers.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.mgr, r.options = mgr.GetClient(), mgr, opts
	r.started = map[string]*machines{}
	r.operations = newOperations(ctx)
	return ctrl.NewControllerManagedBy(mgr).
		Named("drivermachines").
		For(&managementv3.NodeDriver{}).
		Watches(&apiextensionsv1.CustomResourceDefinition{}, handler.EnqueueRequestsFromMapFunc(mapfuncs.ByLabel(schema.DriverLabel)),
			builder.OnlyMetadata).
		Complete(apierrors.Requeue(r))
}

// Settle is for a hub that stops, after the context of SetupWithManager has ended: it waits, for some seconds at most, for drivers that
// create machines, which end with the process of the hub. Until the cloud has answered, nobody knows the instance that it is creating.
func (r *Reconciler) Settle() {
	if r.operations != nil {
		r.operations.settle()
	}
}

// Reconcile starts the controller of a driver once its kinds are installed. It runs as long as they may have objects.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	driver := &managementv3.NodeDriver{}
	found, err := objects.Get(ctx, r.Client, req.NamespacedName, driver)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !found {
		return ctrl.Result{}, r.stop(ctx)
	}
	name := driver.Status.DriverName
	m := r.started[name]
	if driver.Status.Checksum == "" || schema.ValidateName(name) != "" || m != nil && !m.stopped.Load() {
		return ctrl.Result{}, nil
	}
	// A controller of a kind that is not there would end the hub.
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	key := client.ObjectKey{Name: capicontract.DefinitionName(schema.MachineKind(name).GroupKind())}
	if found, err := objects.Get(ctx, r.Client, key, crd); err != nil || !found || !crd.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, err
	}
	if m != nil && m.nodeDriver == driver.Name {
		return ctrl.Result{}, m.resume(ctx)
	}
	if m, err = r.start(name, driver.Name); err != nil {
		return ctrl.Result{}, fmt.Errorf("starting the controller of driver %s: %w", name, err)
	}
	r.started[name] = m
	return ctrl.Result{}, nil
}

// stop has controllers do nothing whose kinds were deleted with their NodeDriver. The watch of the kind goes on, and finds nothing, until
// the kind is there again: Cluster API's controllers use the same one, and would go on with it after it has ended.
func (r *Reconciler) stop(ctx context.Context) error {
	left := &managementv3.NodeDriverList{}
	if err := r.Client.List(ctx, left); err != nil {
		return fmt.Errorf("listing NodeDrivers: %w", err)
	}
	for name, m := range r.started {
		if !has(left, name) {
			m.stopped.Store(true)
		}
	}
	return nil
}

// resume has a controller go on whose kind is there again, with the machines that it has left alone meanwhile.
func (m *machines) resume(ctx context.Context) error {
	m.stopped.Store(false)
	for _, request := range m.list(ctx) {
		machine := object(m.kind)
		machine.SetNamespace(request.Namespace)
		machine.SetName(request.Name)
		select {
		case m.events <- event.GenericEvent{Object: machine}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func has(list *managementv3.NodeDriverList, driver string) bool {
	for _, d := range list.Items {
		if d.Status.DriverName == driver && d.Status.Checksum != "" {
			return true
		}
	}
	return false
}

func object(kind runtimeschema.GroupVersionKind) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	return o
}

// start starts the controller of the machines of one driver.
func (r *Reconciler) start(driver, nodeDriver string) (*machines, error) {
	kind := schema.MachineKind(driver)
	m := &machines{
		Client: r.Client, clusterCache: r.ClusterCache, drivers: r.Drivers, operations: r.operations, now: time.Now,
		driver: driver, nodeDriver: nodeDriver, kind: kind, events: make(chan event.GenericEvent, 1024), restored: r.Restored,
	}
	options := r.options
	options.SkipNameValidation = new(true) // a driver that was deleted may be created again
	var err error
	m.controller, err = ctrl.NewControllerManagedBy(r.mgr).
		Named("drivermachine-"+driver).
		For(object(kind)).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(util.MachineToInfrastructureMapFunc(kind))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(m.clusterToMachines), builder.WithPredicates(predicates.ClusterChanged)).
		Watches(&managementv3.NodeDriver{}, handler.EnqueueRequestsFromMapFunc(m.nodeDriverToMachines)).
		WatchesRawSource(source.Channel(m.events, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(r.ClusterCache.GetClusterSource("drivermachine-"+driver, m.clusterToMachines)).
		WithOptions(options).
		Build(apierrors.Requeue(m))
	return m, err
}
