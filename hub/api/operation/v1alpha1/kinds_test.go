package v1alpha1

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestKinds: what is generic over operations finds each kind in all three places.
func TestKinds(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if len(Kinds()) != len(Lists()) {
		t.Errorf("%d kinds, %d lists", len(Kinds()), len(Lists()))
	}
	for _, op := range Kinds() {
		if !scheme.Recognizes(GroupVersion.WithKind(Kind(op))) || ListOf(op) == nil {
			t.Errorf("%s: in the scheme: %v, list %T", Kind(op), scheme.Recognizes(GroupVersion.WithKind(Kind(op))), ListOf(op))
		}
	}
}
