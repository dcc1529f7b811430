package embedded

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/fake"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// TestWithoutResync: definitions that have not changed are no events, also where the informer presents all of them from time to time.
func TestWithoutResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
		client := fake.NewSimpleClientset(definition) //nolint:staticcheck // the other one knows no schema of definitions
		factory := externalversions.NewSharedInformerFactory(client, 5*time.Minute)
		var all, changed int
		count := func(of externalversions.SharedInformerFactory, updates *int) {
			_, err := of.Apiextensions().V1().CustomResourceDefinitions().Informer().AddEventHandler(
				cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) { *updates++ }})
			if err != nil {
				t.Fatal(err)
			}
		}
		count(factory, &all)
		count(withoutResync{factory}, &changed)
		ctx, stop := context.WithCancel(t.Context())
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		time.Sleep(time.Hour)
		synctest.Wait()
		if all == 0 || changed != 0 {
			t.Errorf("nothing has changed: %d events, %d without those of a resync", all, changed)
		}
		definition = definition.DeepCopy()
		definition.ResourceVersion = "2"
		if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Update(ctx, definition, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if changed != 1 {
			t.Errorf("it has changed: %d events", changed)
		}
		stop()
		factory.Shutdown()
	})
}
