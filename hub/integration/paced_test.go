package integration

import (
	"fmt"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// TestPacedControllers: those that look at all machines of a cluster, or at each machine, are paced in the hub.
func TestPacedControllers(t *testing.T) {
	t.Parallel()
	want := []string{"cluster", "machine", "machinedeployment", "machineset", "provisioningcluster"}
	eventually(t, "the paced controllers to start", func() error {
		families, err := metrics.Registry.Gather()
		if err != nil {
			return err
		}
		var got []string
		for _, family := range families {
			if family.GetName() != "drover_reconciles_delayed_total" {
				continue
			}
			for _, m := range family.GetMetric() {
				got = append(got, m.GetLabel()[0].GetValue())
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("they are %q, want %q", got, want)
		}
		return nil
	})
}
