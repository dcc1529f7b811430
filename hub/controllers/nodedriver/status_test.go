package nodedriver

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
)

// TestObservedGeneration: a status says which spec it is about.
func TestObservedGeneration(t *testing.T) {
	driver := &managementv3.NodeDriver{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	driver.Status.ObservedGeneration = 1
	setStatus(&scope{driver: driver, name: "lab"})
	if got := driver.Status; got.ObservedGeneration != 2 || got.DriverName != "lab" {
		t.Errorf("the status is %+v", got)
	}
}
