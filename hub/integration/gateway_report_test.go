package integration

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkMetadataKept checks that a machine's report has changed nothing but data: the gateway writes all of the Secret.
func checkMetadataKept(t *testing.T, before, after *corev1.Secret) {
	t.Helper()
	others := slices.DeleteFunc(slices.Clone(after.ManagedFields), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == "drover-gateway"
	})
	if diff := cmp.Diff(before.ManagedFields, others); diff != "" || len(others) == 0 {
		t.Errorf("managed fields of others:\n%s", diff)
	}
	if diff := cmp.Diff(before.OwnerReferences, after.OwnerReferences); diff != "" || len(before.OwnerReferences) == 0 {
		t.Errorf("owners:\n%s", diff)
	}
	if diff := cmp.Diff(before.Labels, after.Labels); diff != "" {
		t.Errorf("labels:\n%s", diff)
	}
}
