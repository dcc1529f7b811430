package cli

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

// TestNoTimeline: of a cluster without a timeline, "hub status" says whether there is one.
func TestNoTimeline(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: demoKey.Namespace, Name: demoKey.Name}
	imported := &provisioningv1.Cluster{ObjectMeta: meta}
	created := &provisioningv1.Cluster{ObjectMeta: meta, Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}}
	foreign := &clusterv1.Cluster{ObjectMeta: meta}
	for name, tc := range map[string]struct {
		objects   []client.Object
		forbidden bool
		want      string
	}{
		"none":              {want: "there is no Cluster of this name"},
		"imported":          {objects: []client.Object{imported}, want: "without spec.rkeConfig it is imported"},
		"new":               {objects: []client.Object{created}, want: "no hub has worked on it"},
		"of another":        {objects: []client.Object{foreign}, want: "is not an RKEControlPlane"},
		"without the right": {objects: []client.Object{created}, forbidden: true, want: "does not exist or no hub manages it"},
	} {
		c := interceptor.NewClient(fakeAPI(t, tc.objects...), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				switch o.(type) {
				case *corev1.ConfigMap:
					return apierrors.NewNotFound(corev1.Resource("configmaps"), key.Name)
				default:
					if tc.forbidden {
						return apierrors.NewForbidden(provisioningv1.GroupVersion.WithResource("clusters").GroupResource(), key.Name, nil)
					}
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		_, err := readTimeline(t.Context(), c, demoKey)
		if err == nil || !strings.HasPrefix(err.Error(), "cluster ns/demo has no timeline: ") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
