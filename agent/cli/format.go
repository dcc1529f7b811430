package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// age is the time from a moment until now as kubectl prints it: "4s", "3m20s", "2d4h".
func age(t, now time.Time) string { return duration.HumanDuration(max(now.Sub(t), 0)) }

// clockTime is a moment in now's time zone, with the date if it is not that of now.
func clockTime(t, now time.Time) string {
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateTime)
}

// timeUntil is a moment in the future: "in 12s (03:00:12)", or "now" if it has passed.
func timeUntil(t, now time.Time) string {
	if !t.After(now) {
		return "now"
	}
	return fmt.Sprintf("in %s (%s)", age(now, t), clockTime(t, now))
}

// since is a moment in the past: "03:00:12 (4s ago)".
func since(t, now time.Time) string {
	return fmt.Sprintf("%s (%s ago)", clockTime(t, now), age(t, now))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}

// newTable aligns columns that are separated by tabs, as kubectl does; Flush writes them.
func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }
