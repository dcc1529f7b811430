package capi

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/core/webhooks/conversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/util/capicontract"
)

// setupWebhooks registers upstream's admission webhooks and, through them, conversion at /convert. Those of kinds behind feature gates
// are registered too: with the gate off their work is to refuse.
func setupWebhooks(mgr ctrl.Manager, cache clustercache.ClusterCache) error {
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
		&admission.Machine{},
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
