package operation

import (
	"testing"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
)

// TestKinds: every kind of operation that users can create has steps.
func TestKinds(t *testing.T) {
	for _, op := range operationv1.Kinds() {
		k := kindOf(op)
		if k.begin == nil || k.done == nil || len(k.steps) == 0 {
			t.Errorf("%s: got %+v", operationv1.Kind(op), k)
		}
		names := map[string]bool{}
		for _, s := range k.steps {
			if s.name == "" || names[s.name] || s.timeout <= 0 || s.title == "" || (s.hub == nil) != (s.machines != nil && s.doing != "") {
				t.Errorf("%s, step %q: got %+v", operationv1.Kind(op), s.name, s)
			}
			names[s.name] = true
		}
	}
}
