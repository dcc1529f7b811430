package render

import "testing"

// BenchmarkPlan renders the plan of one server on which everything is configured that can be.
func BenchmarkPlan(b *testing.B) {
	in := everything(b, "v1.36.3+k3s1")
	b.ReportAllocs()
	for b.Loop() {
		if plan, _ := Plan(in); len(plan.Files) == 0 {
			b.Fatal("the plan is empty")
		}
	}
}
