package embedded

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTrim: informers of the embedded API server keep of objects what is read of them.
func TestTrim(t *testing.T) {
	meta := metav1.ObjectMeta{
		Name: "one", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Machine", Name: "one"}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "hub"}},
	}
	whole := &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"token": []byte("t"), "ca.crt": []byte("c"), "namespace": []byte("n")}}
	for name, tc := range map[string]struct {
		transform func(any) (any, error)
		dropped   func(*corev1.Secret)
	}{
		"all":                   {trimObject, func(*corev1.Secret) {}},
		"the garbage collector": {ownersOnly, func(s *corev1.Secret) { s.Labels, s.Annotations = nil, nil }},
		"tokens":                {tokenAlone, func(s *corev1.Secret) { s.Data = map[string][]byte{"token": []byte("t")} }},
	} {
		want, got := whole.DeepCopy(), whole.DeepCopy()
		want.ManagedFields = nil
		tc.dropped(want)
		if _, err := tc.transform(got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
