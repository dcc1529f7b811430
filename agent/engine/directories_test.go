package engine

import (
	"testing"

	"github.com/drover-dev/drover/agent/engine/journal"
)

// TestSourcesWithTheSamePlan shows that a file with the plan of the hub, or of another file, has runs of its own: neither ends what the
// other runs.
func TestSourcesWithTheSamePlan(t *testing.T) {
	id := journal.AttemptID{Checksum: "0123456789abcdef", Attempt: 2}
	units := map[string]string{}
	for _, source := range []string{"", "local/a", "local/b"} {
		unit := New(Options{Name: source}).unit(id, 3)
		if other, taken := units[unit]; taken {
			t.Errorf("%s is a unit of %q and of %q", unit, source, other)
		}
		units[unit] = source
	}
	if _, found := units["system-agent-0123456789ab-2-3"]; !found {
		t.Errorf("got %v", units)
	}
}
