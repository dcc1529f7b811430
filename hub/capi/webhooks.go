package capi

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/core/webhooks/conversion"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/drover-dev/drover/hub/contract"
)

// setupWebhooks registers upstream's admission webhooks and, through them, conversion at /convert. Those of kinds behind feature gates
// are registered too: with the gate off their work is to refuse.
func setupWebhooks(mgr ctrl.Manager, cache clustercache.ClusterCache) error {
	conversion.SetAPIVersionGetter(func(ctx context.Context, kind schema.GroupKind) (string, error) {
		// References in v1beta2 hold no version; conversion to v1beta1 asks for it.
		return contract.APIVersion(ctx, mgr.GetClient(), kind)
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
