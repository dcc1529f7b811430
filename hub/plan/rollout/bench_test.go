package rollout

import (
	"fmt"
	"testing"
)

// BenchmarkDecide decides about a thousand machines that all want a change.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			in := Inputs{Bootstrapped: true, WorkerConcurrency: "10%", ControlPlaneDrain: DrainOptions{Enabled: true, Options: "drain"}}
			for i := range n {
				roles := "w"
				if i < 5 {
					roles = "ec"
				}
				m := member(fmt.Sprintf("m%04d", i), roles)
				m.Init, m.Change, m.Version, m.WantVersion = i == 0, ChangeDrain, "v1.35.0", "v1.36.0"
				if i < 5 {
					m.Change, m.Version = ChangeNone, "v1.36.0"
				}
				in.Machines = append(in.Machines, m)
			}
			b.ReportAllocs()
			for b.Loop() {
				Elect(in.Machines, "", true)
				Decide(in)
			}
		})
	}
}
