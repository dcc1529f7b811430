package cluster

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sigs.k8s.io/cluster-api/controllers/external"

	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/capicontract"
)

// watching is a controller that watches whatever it is asked to.
type watching struct{ controller.Controller }

func (watching) Watch(source.Source) error { return nil }

// TestProviderDoesNotAnswer: where the cache of a provider's kind does not come up, the reconcile of a Cluster ends with what to check. It
// would wait for ever, and ten such Clusters would keep all others from being reconciled.
func TestProviderDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kind := schema.GroupKind{Group: "infrastructure.cluster.x-k8s.io", Kind: "LabMachineTemplate"}
		scheme := fakeclient.Scheme(t, apiextensionsv1.AddToScheme)
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: capicontract.DefinitionName(kind),
			Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1"}}}
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(definition).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, ofProvider := o.(*unstructured.Unstructured); !ofProvider {
					return c.Get(ctx, key, o, opts...)
				}
				<-ctx.Done()
				return apierrors.NewTimeoutError("failed waiting for the informer to sync", 0)
			},
		}).Build()
		r := &Reconciler{Client: c, tracker: &external.ObjectTracker{Controller: watching{}, Cache: struct{ cache.Cache }{}, Scheme: scheme,
			PredicateLogger: new(logr.Discard())}}

		began := time.Now()
		_, err := r.readProviderObject(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "workers"}, kind)
		if err == nil || !strings.Contains(err.Error(), "check that the provider of kind "+kind.String()+" is running") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
