package signing

import (
	"maps"
	"testing"
	"time"

	"github.com/drover-dev/drover/plans"
)

// TestStaleWithoutStates: what an agent that reports checksums only has applied is not signed again because the hub has started.
func TestStaleWithoutStates(t *testing.T) {
	now := time.UnixMilli(1000)
	before := newSigner(t, &now)
	data := plans.SecretData{}
	plans.Deliver(data, []byte("{}"), 0, 0)
	if err := before.Sign(data, nil, machine); err != nil {
		t.Fatal(err)
	}
	sum := plans.Checksum([]byte("{}"))
	now = time.UnixMilli(5000)
	after := New(before.key, func() time.Time { return now })
	for name, tc := range map[string]struct {
		reported map[string]string
		stale    bool
	}{
		"nothing":                     {stale: true},
		"the plan":                    {map[string]string{plans.KeyAppliedChecksum: sum}, false},
		"the plan, by an earlier hub": {map[string]string{plans.KeyAppliedChecksum: sum, plans.KeyPlanRevision: "0"}, false},
		"another plan":                {map[string]string{plans.KeyAppliedChecksum: "other"}, true},
		"the plan, delivered again":   {map[string]string{plans.KeyAppliedChecksum: sum, plans.KeyPlanRevision: "1"}, true},
		"a failure of another":        {map[string]string{plans.KeyFailedChecksum: "other"}, true},
	} {
		reported := maps.Clone(data)
		for key, value := range tc.reported {
			reported[key] = []byte(value)
		}
		if got := after.Stale(reported, machine); got != tc.stale {
			t.Errorf("reported %s: stale %t, want %t", name, got, tc.stale)
		}
		// Where the data were restored, it is signed all the same: the machine may get another agent.
		restored := New(before.key, func() time.Time { return now })
		restored.SetRestored(now)
		if !restored.Stale(reported, machine) {
			t.Errorf("reported %s: not stale after a restore", name)
		}
	}
}
