package integration

import (
	"fmt"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// controllersOf are the controllers that a metric of the hub has.
func controllersOf(metric string) (controllers []string, err error) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return nil, err
	}
	for _, family := range families {
		if family.GetName() != metric {
			continue
		}
		for _, m := range family.GetMetric() {
			controllers = append(controllers, m.GetLabel()[0].GetValue())
		}
	}
	slices.Sort(controllers)
	return controllers, nil
}

// TestPacedControllers: those that look at all machines of a cluster, or at each machine, are paced in the hub.
func TestPacedControllers(t *testing.T) {
	t.Parallel()
	want := []string{"cluster", "machine", "machinedeployment", "machineset", "provisioningcluster"}
	eventually(t, "the paced controllers to start", func() error {
		got, err := controllersOf("drover_reconciles_delayed_total")
		if err != nil {
			return err
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("they are %q, want %q", got, want)
		}
		return nil
	})
}

// TestFairControllers: those that make requests to clusters, and those that are paced, have workers for other namespaces.
func TestFairControllers(t *testing.T) {
	t.Parallel()
	want := []string{"cluster", "clustercache", "clusterresourceset", "custommachine", "etcdsnapshot", "machine", "machinedeployment",
		"machinehealthcheck", "machineset", "nodedrain", "nodesync", "preterminatehook", "provisioningcluster", "rkecontrolplane"}
	eventually(t, "the fair controllers to start", func() error {
		got, err := controllersOf("drover_reconciles_waiting")
		if err != nil {
			return err
		}
		for _, controller := range want {
			if !slices.Contains(got, controller) {
				return fmt.Errorf("%s is none of them: %q", controller, got)
			}
		}
		return nil
	})
}
