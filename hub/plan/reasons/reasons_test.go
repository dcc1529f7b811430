package reasons

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestGet(t *testing.T) {
	if got := Get("WaitingForProbes"); got != (Reason{Name: "WaitingForProbes", Status: metav1.ConditionUnknown}) {
		t.Errorf("a reason that is not listed is %+v", got)
	}
	seen := map[string]bool{}
	for _, r := range table {
		if seen[r.Name] || r.Status == "" {
			t.Errorf("%s stands twice, or has no status", r.Name)
		}
		seen[r.Name] = true
		if Get(r.Name) != r {
			t.Errorf("Get(%s) is %+v", r.Name, Get(r.Name))
		}
	}
}
