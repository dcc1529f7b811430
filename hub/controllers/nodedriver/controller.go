// Package nodedriver reconciles NodeDrivers: it gets the program of a driver, reads its create flags in a sandbox, and installs the kinds
// that the flags make. It makes no machines.
package nodedriver

import (
	"context"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"sigs.k8s.io/cluster-api/util/finalizers"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/nodedriver"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
	"github.com/drover-dev/drover/hub/util/apierrors"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/patch"
)

// Finalizer keeps a NodeDriver until none of its machines and configurations are left and its kinds are deleted.
const Finalizer = "management.cattle.io/node-driver"

const fieldOwner = client.FieldOwner("drover-nodedriver")

// concurrent is how many drivers are downloaded and asked at a time.
const concurrent = 2

// Reconciler reconciles NodeDrivers.
type Reconciler struct {
	// Client reads from the cache and writes, Live reads past the cache; SetupWithManager sets both.
	Client client.Client
	Live   client.Reader
	// Drivers is required.
	Drivers nodedriver.Drivers

	// read has what identifies the program by the UID of the NodeDriver whose flags this process has read: another version of the hub may
	// make other definitions of the same flags.
	read sync.Map
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, opts controller.Options) error {
	r.Client, r.Live = mgr.GetClient(), mgr.GetAPIReader()
	opts.MaxConcurrentReconciles = concurrent
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodedriver").
		For(&managementv3.NodeDriver{}).
		Watches(&apiextensionsv1.CustomResourceDefinition{}, handler.EnqueueRequestsFromMapFunc(mapfuncs.ByLabel(schema.DriverLabel)),
			builder.OnlyMetadata).
		WithOptions(opts).
		Complete(apierrors.Requeue(r))
}

// Reconcile writes the NodeDriver once at the end.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, reterr error) {
	driver := &managementv3.NodeDriver{}
	if err := r.Client.Get(ctx, req.NamespacedName, driver); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if added, err := finalizers.EnsureFinalizer(ctx, r.Client, driver, Finalizer); err != nil || added {
		return ctrl.Result{}, err
	}
	s := &scope{driver: driver, name: Name(driver)}
	helper := patch.NewHelper(r.Client, driver, fieldOwner, ownedConditions...)
	defer func() {
		setStatus(s)
		reterr = kerrors.NewAggregate([]error{reterr, helper.Patch(ctx, driver)})
	}()
	if !driver.DeletionTimestamp.IsZero() {
		return r.reconcileDelete(ctx, s)
	}
	return ctrl.Result{}, r.reconcileNormal(ctx, s)
}
