package cli

import "testing"

// TestCollected: a small machine keeps its memory, and a large one its processor.
func TestCollected(t *testing.T) {
	for memory, want := range map[uint64][2]uint64{
		0: {560 << 20}, 4 << 30: {560 << 20}, 9 << 30: {1 << 30, 3 << 30}, 63 << 30: {1 << 30, 21 << 30},
	} {
		if got := collected(memory); got.BusyHeap != want[0] || got.LargeHeap != want[1] || got.Percent != 25 {
			t.Errorf("with %d MiB: %+v", memory>>20, got)
		}
	}
	if memory() == 0 {
		t.Error("the memory of this machine is unknown")
	}
}
