package capi

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/core/webhooks/conversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	webhook "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/drover-dev/drover/hub/util/capicontract"
)

// setupWebhooks registers upstream's admission webhooks and, through them, conversion at /convert. Those of kinds behind feature gates
// are registered too: with the gate off their work is to refuse.
func setupWebhooks(mgr ctrl.Manager, cache clustercache.ClusterCache, opts Options) error {
	conversion.SetAPIVersionGetter(func(ctx context.Context, kind schema.GroupKind) (string, error) {
		return referenceVersion(ctx, mgr.GetClient(), kind)
	})
	c := mgr.GetClient()
	for _, hook := range []interface{ SetupWebhookWithManager(ctrl.Manager) error }{
		&admission.Cluster{Client: c, ClusterCacheReader: cache},
		&admission.ClusterClass{Client: c},
		&admission.ClusterResourceSet{},
		&admission.ClusterResourceSetBinding{},
		&admission.ExtensionConfig{},
		&admission.IPAddress{Client: mgr.GetAPIReader()},
		&admission.IPAddressClaim{},
		&machineWebhook{complete: opts.NewMachine, from: c},
		&admission.MachineDeployment{},
		&admission.MachineDrainRule{},
		&admission.MachineHealthCheck{},
		&admission.MachinePool{},
		&admission.MachineSet{},
	} {
		if err := hook.SetupWebhookWithManager(mgr); err != nil {
			return fmt.Errorf("setting up Cluster API webhook %T: %w", hook, err)
		}
	}
	return nil
}

// machineWebhook is upstream's webhook of Machines, and completes those that are created.
type machineWebhook struct {
	admission.Machine
	complete func(context.Context, client.Reader, *clusterv1.Machine)
	from     client.Reader
}

// SetupWebhookWithManager registers the webhook where upstream's would be.
func (w *machineWebhook) SetupWebhookWithManager(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &clusterv1.Machine{}).
		WithDefaulter(w).WithValidator(&w.Machine).WithConverter(conversion.Machine).Complete()
}

// Default sets upstream's defaults.
func (w *machineWebhook) Default(ctx context.Context, m *clusterv1.Machine) error {
	request, err := webhook.RequestFromContext(ctx)
	if err == nil && request.Operation == admissionv1.Create && w.complete != nil {
		w.complete(ctx, w.from, m)
	}
	return w.Machine.Default(ctx, m)
}

// unknownVersion stands in a v1beta1 reference for the version of a kind that is not installed. Nothing reads it: a reference counts by its
// group and kind.
const unknownVersion = "unknown"

// referenceVersion is the apiVersion of references to a kind, which v1beta1 holds and v1beta2 does not. A kind that is not installed has
// one too: a conversion that fails fails the list of all objects, of whatever namespace, because of a name in one of them.
func referenceVersion(ctx context.Context, c client.Reader, kind schema.GroupKind) (string, error) {
	version, err := capicontract.APIVersion(ctx, c, kind)
	var notInstalled *capicontract.NotInstalledError
	var notKept *capicontract.NotSupportedError
	if errors.As(err, &notInstalled) || errors.As(err, &notKept) {
		return schema.GroupVersion{Group: kind.Group, Version: unknownVersion}.String(), nil
	}
	return version, err
}
