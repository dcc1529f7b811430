package capi

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/core/webhooks/conversion"
	"sigs.k8s.io/cluster-api/util/contract"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// setupWebhooks registers upstream's admission webhooks and, through them, conversion at /convert. Those of kinds behind feature gates
// are registered too: with the gate off their work is to refuse.
func setupWebhooks(mgr ctrl.Manager, cache clustercache.ClusterCache) error {
	conversion.SetAPIVersionGetter(func(ctx context.Context, kind schema.GroupKind) (string, error) {
		return newestVersion(ctx, mgr.GetClient(), kind)
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

// newestVersion returns the apiVersion that objects of a provider's kind are read in: of the versions that its definition names for the
// newest contract that we understand, the newest. References in v1beta2 hold no version, so converting them to v1beta1 asks for it here.
func newestVersion(ctx context.Context, c client.Reader, kind schema.GroupKind) (string, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	name := contract.CalculateCRDName(kind.Group, kind.Kind)
	if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		return "", fmt.Errorf("reading definition of %s: %w", kind, err)
	}
	for _, contractVersion := range []string{"v1beta2", "v1beta1"} {
		label := crd.Labels[clusterv1.GroupVersion.Group+"/"+contractVersion]
		if label == "" {
			continue
		}
		newest := slices.MaxFunc(strings.Split(label, "_"), version.CompareKubeAwareVersionStrings)
		return schema.GroupVersion{Group: kind.Group, Version: newest}.String(), nil
	}
	return "", fmt.Errorf("definition %s has no label that says which of its versions follow contract v1beta2 or v1beta1", name)
}
