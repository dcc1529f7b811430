package render

import (
	"runtime"
	"strings"
	"testing"
)

// TestPatterns: the pattern of a rewrite is checked, in little memory whatever it is.
func TestPatterns(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := checkPattern(strings.Repeat("x{1000}", 2000))
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; err != nil || allocated > 16<<20 {
		t.Errorf("%d bytes were allocated, %v", allocated, err)
	}
	if checkPattern("a(b") == nil {
		t.Error("a group that does not end is accepted")
	}
}
