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

// Changes tell what differs between two plans. They name things and hold no content, so they may be logged and shown.
type Changes struct {
	// Files are by path.
	Files Delta
	// Instructions and PeriodicInstructions are by name, or by "#<index>" where they have none.
	Instructions         Delta
	PeriodicInstructions Delta
	// Probes are by name.
	Probes Delta
	// Reordered is set when the same files or instructions come in another order.
	Reordered bool

	weighty bool
}

// Delta is how one list differs. Each part is sorted.
type Delta struct {
	Added   []string
	Changed []string
	Removed []string
}

// Empty tells whether nothing differs.
func (d Delta) Empty() bool {
	return len(d.Added) == 0 && len(d.Changed) == 0 && len(d.Removed) == 0
}

// Empty tells whether the plans ask for the same.
func (c Changes) Empty() bool {
	return c.Files.Empty() && c.Instructions.Empty() && c.PeriodicInstructions.Empty() && c.Probes.Empty() && !c.Reordered
}

// Minor tells whether the plans differ in nothing but files that are marked as minor, so that the change may be delivered at any
// time. Equal plans have no change and so no minor one.
func (c Changes) Minor() bool {
	return !c.Files.Empty() && !c.weighty && c.Instructions.Empty() && c.PeriodicInstructions.Empty() && c.Probes.Empty() && !c.Reordered
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

// Diff compares two plans.
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
		was, existed := oldFiles[name]
		is, exists := newFiles[name]
		if existed && !was.Minor || exists && !is.Minor {
			c.weighty = true
		}
	}
	return c
}

// index keys a list by name, making a name of the place where there is none or where it is taken, and gives the keys in order.
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
		was, existed := before[name]
		switch {
		case !existed:
			d.Added = append(d.Added, name)
		case !same(was, after[name]):
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

// same compares what would be written, so that an empty list and none are the same.
func same[T any](a, b T) bool {
	rawA, errA := json.Marshal(a)
	rawB, errB := json.Marshal(b)
	return errA == nil && errB == nil && bytes.Equal(rawA, rawB)
}

// reordered tells whether what both lists hold comes in different orders.
func reordered(before, after []string) bool {
	common := func(list, other []string) []string {
		return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return !slices.Contains(other, name) })
	}
	return !slices.Equal(common(before, after), common(after, before))
}
