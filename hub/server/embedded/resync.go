package embedded

import (
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// withoutResync are the informers of definitions for those controllers that are made when the server starts. Upstream's informer presents
// all definitions to them every five minutes, also when none has changed, and the one of OpenAPI then builds the documents of all kinds to
// find that they are the same.
type withoutResync struct {
	externalversions.SharedInformerFactory
}

// Apiextensions implements externalversions.SharedInformerFactory.
func (f withoutResync) Apiextensions() apiextensions.Interface {
	return changedGroup{f.SharedInformerFactory.Apiextensions()}
}

type changedGroup struct{ apiextensions.Interface }

// V1 implements apiextensions.Interface.
func (g changedGroup) V1() apiextensionsv1.Interface { return changedVersion{g.Interface.V1()} }

type changedVersion struct{ apiextensionsv1.Interface }

// CustomResourceDefinitions implements apiextensionsv1.Interface.
func (v changedVersion) CustomResourceDefinitions() apiextensionsv1.CustomResourceDefinitionInformer {
	return changedDefinitions{v.Interface.CustomResourceDefinitions()}
}

type changedDefinitions struct {
	apiextensionsv1.CustomResourceDefinitionInformer
}

// Informer implements apiextensionsv1.CustomResourceDefinitionInformer.
func (d changedDefinitions) Informer() cache.SharedIndexInformer {
	return changedObjects{d.CustomResourceDefinitionInformer.Informer()}
}

type changedObjects struct{ cache.SharedIndexInformer }

// AddEventHandler implements cache.SharedInformer.
func (o changedObjects) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return o.SharedIndexInformer.AddEventHandler(changes{handler})
}

// changes are the events of objects that have changed.
type changes struct{ cache.ResourceEventHandler }

// OnUpdate implements cache.ResourceEventHandler.
func (c changes) OnUpdate(before, after any) {
	b, errBefore := meta.Accessor(before)
	a, errAfter := meta.Accessor(after)
	if errBefore == nil && errAfter == nil && b.GetUID() == a.GetUID() && b.GetResourceVersion() == a.GetResourceVersion() {
		return
	}
	c.ResourceEventHandler.OnUpdate(before, after)
}
