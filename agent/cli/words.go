package cli

import (
	"fmt"
	"strings"
	"time"
)

// span is a time span as people say it: "4s", "3m20s", "2h5m", "3d4h".
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 24*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	hours := int(d.Round(time.Hour) / time.Hour)
	return fmt.Sprintf("%dd%dh", hours/24, hours%24)
}

// clock is a moment in now's zone, with the day where that is another one.
func clock(t, now time.Time) string {
	t = t.In(now.Location())
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// until is a moment that lies ahead.
func until(t, now time.Time) string {
	if !t.After(now) {
		return "now"
	}
	return fmt.Sprintf("in %s (%s)", span(t.Sub(now)), clock(t, now))
}

func bytesText(n int64) string {
	const unit = 1 << 10
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, exp := float64(n)/unit, 0
	for value >= unit && exp < 3 {
		value /= unit
		exp++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGT"[exp])
}

// shortSum is as much of a checksum as people compare.
func shortSum(checksum string) string { return checksum[:min(len(checksum), 12)] }

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
