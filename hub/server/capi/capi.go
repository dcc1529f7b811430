// Package capi runs upstream's Cluster API core controllers and webhooks inside the hub. It holds wiring only: which of upstream's
// reconcilers and webhooks run and with what settings, the certificates for the webhooks, and how the API server finds them.
//
// It must not contain behaviour of Cluster API; that comes from the modules that go.mod pins.
package capi

import (
	"context"
	"fmt"
	goruntime "runtime"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	addonsv1beta1 "sigs.k8s.io/cluster-api/api/addons/v1beta1"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1alpha1 "sigs.k8s.io/cluster-api/api/ipam/v1alpha1"
	ipamv1beta1 "sigs.k8s.io/cluster-api/api/ipam/v1beta1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	runtimev1alpha1 "sigs.k8s.io/cluster-api/api/runtime/v1alpha1"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
	"sigs.k8s.io/cluster-api/util/index"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/drover-dev/drover/hub/util/fairqueue"
	"github.com/drover-dev/drover/hub/util/pace"
)

// controllerName names the hub towards workload clusters.
const controllerName = "drover-hub"

// Options say how much of Cluster API the hub runs itself.
type Options struct {
	// External leaves core controllers and webhooks to another installation of Cluster API. The cluster cache is made all the same,
	// since Drover's own controllers need it.
	External bool
	// NoConnections leaves out the cluster cache, for controllers that do not need it. It needs External.
	NoConnections bool
	// Work paces the core controllers. It is required without External.
	Work *pace.Work
	// NewMachine completes a Machine that is created, beside Cluster API's own defaults; nil for nothing else.
	NewMachine func(context.Context, client.Reader, *clusterv1.Machine)
}

// AddToScheme adds every type that the core controllers and webhooks handle.
func AddToScheme(scheme *runtime.Scheme) error {
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, storagev1.AddToScheme, appsv1.AddToScheme,
		admissionregistrationv1.AddToScheme,
		clusterv1beta1.AddToScheme, clusterv1.AddToScheme,
		addonsv1beta1.AddToScheme, addonsv1.AddToScheme,
		runtimev1alpha1.AddToScheme, runtimev1.AddToScheme,
		ipamv1alpha1.AddToScheme, ipamv1beta1.AddToScheme, ipamv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("adding types to scheme: %w", err)
		}
	}
	return nil
}

// SetupWithManager adds the core controllers and webhooks to the manager and returns the cache of connections to workload clusters,
// which Drover's controllers share with them, or nil where opts want none. The manager's cache has to keep the data of kubeconfig Secrets.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, opts Options) (*Connections, error) {
	if err := index.AddDefaultIndexes(ctx, mgr); err != nil {
		return nil, fmt.Errorf("adding indexes: %w", err)
	}
	if opts.NoConnections {
		return nil, nil
	}
	cache, err := setupClusterCache(ctx, mgr)
	if err != nil {
		return nil, err
	}
	if opts.External {
		return cache, nil
	}
	if err := setupReconcilers(ctx, mgr, cache, opts.Work); err != nil {
		return nil, err
	}
	return cache, setupWebhooks(mgr, cache, opts)
}

// worthConnecting reports whether a cluster can be expected to answer. One whose RKEControlPlane has not come up cannot: an attempt that
// must fail would only put off the next one by half a minute, and with it the first sight of the Nodes.
func worthConnecting(cluster *clusterv1.Cluster) bool {
	return cluster.Spec.ControlPlaneRef.Kind != "RKEControlPlane" || ptr.Deref(cluster.Status.Initialization.ControlPlaneInitialized, false)
}

// concurrency lets so many objects of a namespace be reconciled at once as upstream's manager does of all, where there are processors for
// them: objects that wait for a processor between reading and writing are outdated when they are written, which is a conflict and another
// reconcile. There are half as many workers more for other namespaces.
func concurrency(upstream int) controller.Options {
	const least, forEachProcessor = 10, 5
	each := min(upstream, max(least, forEachProcessor*goruntime.GOMAXPROCS(0)))
	return fairqueue.Options(each + each/2)
}
