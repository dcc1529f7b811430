package preview

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/hub/plan/rollout"
)

// manyWorkers are a server and workers that are to be drained and changed, in the reverse order of their names.
func manyWorkers(n int) rollout.Inputs {
	names := []string{"a1"}
	for i := range n {
		names = append(names, fmt.Sprintf("w%04d", i))
	}
	in := rollout.Inputs{Machines: machines(rollout.ChangeDrain, names...), Bootstrapped: true,
		WorkerDrain: rollout.DrainOptions{Enabled: true, Options: `{"enabled":true}`}}
	slices.Reverse(in.Machines)
	return in
}

// TestOrderOfUnsortedMachines: the machines come in any order, and are not sorted for whoever asks.
func TestOrderOfUnsortedMachines(t *testing.T) {
	in := manyWorkers(3)
	if diff := cmp.Diff("[[a1] [w0000] [w0001] [w0002]]", fmt.Sprint(Order(in))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if in.Machines[0].Name != "w0002" {
		t.Errorf("the machines that were asked about are in another order: %s is the first", in.Machines[0].Name)
	}
}

// BenchmarkOrder asks for the order of a thousand workers that change one after the other.
func BenchmarkOrder(b *testing.B) {
	in := manyWorkers(1000)
	for b.Loop() {
		if got := len(Order(in)); got != 1001 {
			b.Fatalf("%d groups", got)
		}
	}
}
