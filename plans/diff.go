package plans

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Changes are the differences between two plans. They name things and hold no content, so they may be logged and shown.
type Changes struct {
	// Files are by path.
	Files Delta
	// Instructions are by name, or by "#<index>" where they have none.
	Instructions Delta
	// PeriodicInstructions are by name, or by "#<index>" where they have none.
	PeriodicInstructions Delta
	// Probes are by name.
	Probes Delta
	// Reordered is set when the same files or instructions come in another order.
	Reordered bool

	// notMinor is set when a file that is not marked as minor differs.
	notMinor bool
}

// Delta is how one list differs, by name. Each part is sorted.
type Delta struct {
	// Added are only in the newer list.
	Added []string
	// Changed are in both and differ.
	Changed []string
	// Removed are only in the older list.
	Removed []string
}

// Empty reports whether nothing differs.
func (d Delta) Empty() bool {
	return len(d.Added) == 0 && len(d.Changed) == 0 && len(d.Removed) == 0
}

// Empty reports whether the plans have the same effect.
func (c Changes) Empty() bool {
	return c.Files.Empty() && c.Instructions.Empty() && c.PeriodicInstructions.Empty() && c.Probes.Empty() && !c.Reordered
}

// Minor reports whether the plans differ in nothing but files that are marked as minor, so that the change may be delivered at any time. It
// is false for equal plans.
func (c Changes) Minor() bool {
	return !c.Files.Empty() && !c.notMinor && c.Instructions.Empty() && c.PeriodicInstructions.Empty() && c.Probes.Empty() && !c.Reordered
}

// String is one line for people: "files: +/etc/a ~/etc/b; instructions: ~install".
func (c Changes) String() string {
	var parts []string
	for _, list := range []struct {
		title string
		delta Delta
	}{
		{"files", c.Files}, {"instructions", c.Instructions},
		{"periodic instructions", c.PeriodicInstructions}, {"probes", c.Probes},
	} {
		if !list.delta.Empty() {
			parts = append(parts, list.title+": "+list.delta.String())
		}
	}
	if c.Reordered {
		parts = append(parts, "order")
	}
	if len(parts) == 0 {
		return "no change"
	}
	return strings.Join(parts, "; ")
}

// String lists the names with + for added, ~ for changed and - for removed.
func (d Delta) String() string {
	var names []string
	for _, set := range []struct {
		sign  string
		names []string
	}{{"+", d.Added}, {"~", d.Changed}, {"-", d.Removed}} {
		for _, name := range set.names {
			names = append(names, set.sign+name)
		}
	}
	return strings.Join(names, " ")
}

// Diff compares two plans, the older one first.
func Diff(before, after Plan) Changes {
	oldFiles, oldPaths := index(before.Files, func(f File) string { return f.Path })
	newFiles, newPaths := index(after.Files, func(f File) string { return f.Path })
	oldOnce, oldNames := index(before.Instructions, func(i Instruction) string { return i.Name })
	newOnce, newNames := index(after.Instructions, func(i Instruction) string { return i.Name })
	oldPeriodic, _ := index(before.PeriodicInstructions, func(i PeriodicInstruction) string { return i.Name })
	newPeriodic, _ := index(after.PeriodicInstructions, func(i PeriodicInstruction) string { return i.Name })
	c := Changes{
		Files:                delta(oldFiles, newFiles),
		Instructions:         delta(oldOnce, newOnce),
		PeriodicInstructions: delta(oldPeriodic, newPeriodic),
		Probes:               delta(before.Probes, after.Probes),
	}
	c.Reordered = reordered(oldPaths, newPaths) || reordered(oldNames, newNames)
	for _, name := range slices.Concat(c.Files.Added, c.Files.Changed, c.Files.Removed) {
		before, existed := oldFiles[name]
		after, exists := newFiles[name]
		if existed && !before.Minor || exists && !after.Minor {
			c.notMinor = true
		}
	}
	return c
}

// index keys a list by name, or by "#<index>" where there is no name or it is not unique, and returns the keys in order.
func index[T any](list []T, name func(T) string) (map[string]T, []string) {
	byName := make(map[string]T, len(list))
	keys := make([]string, 0, len(list))
	for i, item := range list {
		key := cmp.Or(name(item), fmt.Sprintf("#%d", i))
		for _, taken := byName[key]; taken; _, taken = byName[key] {
			key += fmt.Sprintf("#%d", i)
		}
		byName[key] = item
		keys = append(keys, key)
	}
	return byName, keys
}

func delta[T any](before, after map[string]T) Delta {
	var d Delta
	for _, name := range slices.Sorted(maps.Keys(after)) {
		old, existed := before[name]
		switch {
		case !existed:
			d.Added = append(d.Added, name)
		case !same(old, after[name]):
			d.Changed = append(d.Changed, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, exists := after[name]; !exists {
			d.Removed = append(d.Removed, name)
		}
	}
	return d
}

// same compares the JSON, so that an empty list and none are the same.
func same[T any](a, b T) bool {
	rawA, errA := json.Marshal(a)
	rawB, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(rawA, rawB)
}

// reordered reports whether the common elements of two lists are in different orders.
func reordered(before, after []string) bool {
	common := func(list, other []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return !slices.Contains(other, name) })
	}
	return !slices.Equal(common(before, after), common(after, before))
}
