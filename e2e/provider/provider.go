package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/drover-dev/drover/e2e/hosts"
	labv1 "github.com/drover-dev/drover/e2e/provider/api/v1alpha1"
)

// Options say whose hosts are made.
type Options struct {
	// Lab gets the hosts. Whoever started this process has charge of it.
	Lab *hosts.Lab
	// Config opens the API that the kinds are in.
	Config *rest.Config
	// HealthListen is where /healthz is served.
	HealthListen string
	Logger       logr.Logger
}

// Run runs the controllers until ctx ends.
func Run(ctx context.Context, o Options) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, labv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	mgr, err := ctrl.NewManager(o.Config, ctrl.Options{
		Scheme: scheme, Logger: o.Logger, HealthProbeBindAddress: o.HealthListen, Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return fmt.Errorf("making manager: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	balancer := newBalancer(mgr.GetClient(), o.Lab.HubIP(), o.Logger.WithName("balancer"))
	if err := mgr.Add(balancer); err != nil {
		return err
	}
	clusters := &clusterReconciler{client: mgr.GetClient(), balancer: balancer}
	if err := clusters.setup(mgr); err != nil {
		return fmt.Errorf("setting up the controller of LabClusters: %w", err)
	}
	machines := &machineReconciler{client: mgr.GetClient(), secrets: mgr.GetAPIReader(), lab: o.Lab, balancer: balancer}
	if err := machines.setup(mgr); err != nil {
		return fmt.Errorf("setting up the controller of LabMachines: %w", err)
	}
	return mgr.Start(ctx)
}

// controllerOptions let a few hosts boot side by side, and try again soon: the machine below is near.
func controllerOptions(workers int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](200*time.Millisecond, 15*time.Second),
	}
}
