package lab

import (
	"slices"
	"testing"
)

// What agents are recorded by is a heartbeat; all else counts.
func TestWritten(t *testing.T) {
	before := map[string]string{"a": "1 seen ", "b": "2 seen 10:00", "c": "3 seen 10:00", "gone": "4 seen "}
	after := map[string]string{"a": "5 seen ", "b": "6 seen 10:05", "c": "7 seen 10:00", "new": "8 seen "}
	if got, want := Written(before, after), []string{"a", "c", "gone (deleted)", "new"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := Written(after, after); len(got) > 0 {
		t.Errorf("got %v for the same", got)
	}
}
