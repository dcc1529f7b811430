package timelines

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestReadAtOnce: the parts of a large cluster are not read one after the other, and are put together in their order without one that is
// missing.
func TestReadAtOnce(t *testing.T) {
	record := &Record{}
	for i := range 1000 {
		record.Subject(nil, KindMachine, newMachine(fmt.Sprintf("m%04d", i)))
	}
	parts, _, _, err := record.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var objects []client.Object
	for i, p := range parts {
		if i == 7 {
			continue
		}
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: rkev1.TimelinePartName(clusterKey.Name, i)},
			Data:       map[string]string{DataKey: string(raw)},
		})
	}
	synctest.Test(t, func(t *testing.T) {
		slow := interceptor.NewClient(fake.NewClientBuilder().WithObjects(objects...).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				time.Sleep(time.Second)
				return c.Get(ctx, key, obj, opts...)
			},
		})
		collector, begin := NewCollector(clusterKey), time.Now()
		if err := collector.Read(t.Context(), slow); err != nil || time.Since(begin) > 15*time.Second {
			t.Errorf("%d parts are read in %s, %v", len(parts), time.Since(begin), err)
		}
		got := collector.Record().Subjects
		if len(got) != 992 || got[0].Name != "m0000" || got[56].Name != "m0064" || got[991].Name != "m0999" {
			t.Errorf("got %d machines", len(got))
		}
	})
}
