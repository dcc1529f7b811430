package crds

import "testing"

// TestMachinesOfOperations: who has written the machines in the status of an operation is recorded for the list as a whole. Recorded for
// each machine, that takes more room than the machine, and those of a cluster of 10,000 have to fit into the 1.5 MiB that etcd takes at
// once.
func TestMachinesOfOperations(t *testing.T) {
	kinds := 0
	for name, crd := range definitions(t, Options{SkipCAPI: true}) {
		if crd.Spec.Group != "operation.cattle.io" {
			continue
		}
		for _, version := range crd.Spec.Versions {
			kinds++
			machines := version.Schema.OpenAPIV3Schema.Properties["status"].Properties["machines"]
			if machines.XListType == nil || *machines.XListType != "atomic" {
				t.Errorf("%s: status.machines of %s is not atomic", name, version.Name)
			}
		}
	}
	if kinds == 0 {
		t.Error("no kind of operations was found")
	}
}
