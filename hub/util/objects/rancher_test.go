package objects

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// TestReleaseFromRancher: an object that is being deleted waits for no controller of Rancher, but for all others; one that is not being
// deleted is left as it is.
func TestReleaseFromRancher(t *testing.T) {
	rancher := []string{"wrangler.cattle.io/rke-bootstrap-etcd-removal", "controller.cattle.io/namespace-auth",
		"clusterscoped.controller.cattle.io/cluster-scoped-gc"}
	for what, tt := range map[string]struct {
		finalizers []string
		deleted    bool
		left       []string
		gone       bool
	}{
		"deleted":              {finalizers: rancher, deleted: true, gone: true},
		"of others, too":       {finalizers: append([]string{"example.com/mine"}, rancher...), deleted: true, left: []string{"example.com/mine"}},
		"of a program like it": {finalizers: []string{"wrangler.cattle.io/mine"}, deleted: true, left: []string{"wrangler.cattle.io/mine"}},
		"not deleted":          {finalizers: rancher, left: rancher},
	} {
		t.Run(what, func(t *testing.T) {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "one", Finalizers: tt.finalizers}}
			c := fake.NewClientBuilder().WithObjects(object).Build()
			key := client.ObjectKeyFromObject(object)
			if tt.deleted {
				if err := c.Delete(t.Context(), object); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Get(t.Context(), key, object); err != nil {
				t.Fatal(err)
			}
			if held := what != "of a program like it"; HeldByRancher(object) != held {
				t.Errorf("it is held by Rancher: %v, want %v", !held, held)
			}
			if err := ReleaseFromRancher(t.Context(), c, object, "test"); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(object.Finalizers, tt.finalizers) {
				t.Errorf("the caller's object has %q", object.Finalizers)
			}
			found, err := Get(t.Context(), c, key, object)
			if err != nil || found == tt.gone {
				t.Fatalf("exists: %v (%v)", found, err)
			}
			if found && !slices.Equal(object.Finalizers, tt.left) {
				t.Errorf("it has %q left", object.Finalizers)
			}
		})
	}
}
