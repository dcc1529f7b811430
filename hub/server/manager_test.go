package server

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCacheKeepsManagedFields checks that the cache keeps what Cluster API's controllers need, and drops the rest.
func TestCacheKeepsManagedFields(t *testing.T) {
	if cacheOptions("cattle-system").DefaultTransform != nil {
		t.Error("objects of all kinds are changed before they are in the cache: MachineSets need the managed fields of what they made")
	}
	for kind, kept := range map[corev1.SecretType]bool{"Opaque": false, "rke.cattle.io/machine-plan": true} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{}}}, Type: kind,
			Data: map[string][]byte{"a": nil}}
		if _, err := trimSecret(secret); err != nil {
			t.Fatal(err)
		}
		if len(secret.ManagedFields) > 0 || (len(secret.Data) > 0) != kept {
			t.Errorf("of a Secret of type %s the cache holds %+v", kind, secret)
		}
	}
}
