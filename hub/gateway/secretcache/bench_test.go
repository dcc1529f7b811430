package secretcache

import (
	"fmt"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/drover-dev/drover/plans"
)

// BenchmarkPlanStore is a thousand agents that watch their plans, and the hub that writes one after the other.
func BenchmarkPlanStore(b *testing.B) {
	const machines = 1000
	p := NewPlanStore()
	watchers := make([]*PlanWatcher, machines)
	all := make([]any, machines)
	key := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: planKey.Namespace, Name: fmt.Sprintf("plan-%d", i)}
	}
	for i := range all {
		secret := planAt("1", "a")
		secret.Name, secret.Data = key(i).Name, map[string][]byte{plans.KeyPlan: make([]byte, 64<<10)}
		all[i] = secret
	}
	if err := p.Replace(all, "1"); err != nil {
		b.Fatal(err)
	}
	for i := range watchers {
		var err error
		if _, watchers[i], err = p.Watch(key(i), 1); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for version := 2; b.Loop(); version++ {
		i := version % machines
		secret := planAt(strconv.Itoa(version), "a")
		secret.Name = key(i).Name
		if err := p.Update(secret); err != nil {
			b.Fatal(err)
		}
		if got := (<-watchers[i].events).Secret.ResourceVersion; got != secret.ResourceVersion {
			b.Fatalf("the agent was told version %s, want %d", got, version)
		}
	}
}
