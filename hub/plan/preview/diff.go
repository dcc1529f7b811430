package preview

import (
	"encoding/base64"
	"maps"
	"slices"

	"github.com/aymanbagabas/go-udiff"

	"github.com/drover-dev/drover/plans"
)

// Plans compares two plans. Files whose content nobody may see are told to be another by their marks.
func (m *Mask) Plans(before, after plans.Plan) []Change {
	d := plans.Diff(before, after)
	return slices.Concat(
		changes("file", d.Files, texts(before.Files, fileName, m.file), texts(after.Files, fileName, m.file)),
		changes("instruction", d.Instructions, m.instructions(before), m.instructions(after)),
		changes("periodic instruction", d.PeriodicInstructions, m.periodics(before), m.periodics(after)),
		changes("probe", d.Probes, m.probes(before), m.probes(after)),
	)
}

// changes makes a list of what differs. The texts are those of the plans, by name.
func changes(what string, d plans.Delta, before, after map[string]string) []Change {
	var out []Change
	for _, part := range []struct {
		kind  Kind
		names []string
	}{{Add, d.Added}, {Modify, d.Changed}, {Remove, d.Removed}} {
		for _, name := range part.names {
			out = append(out, Change{What: what, Name: name, Kind: part.kind, Diff: udiff.Unified(name, name, before[name], after[name])})
		}
	}
	return out
}

// texts writes items down for a comparison. plans.Diff names what has no name of its own by its place; that is left without a text.
func texts[T any](items []T, name func(T) string, text func(T) string) map[string]string {
	out := map[string]string{}
	for _, item := range items {
		out[name(item)] = text(item)
	}
	return out
}

func fileName(f plans.File) string { return f.Path }

// file is the content of a file, with what else there is to say about it in front.
func (m *Mask) file(f plans.File) string {
	if f.Action == plans.ActionDelete {
		return "# is removed from the machine\n"
	}
	head := ""
	if f.Permissions != "" {
		head = "# permissions " + f.Permissions + "\n"
	}
	content, err := base64.StdEncoding.DecodeString(f.Content)
	if err != nil {
		return head + m.mark([]byte(f.Content)) + "\n"
	}
	return head + m.Content(f.Path, content)
}

func (m *Mask) instructions(p plans.Plan) map[string]string {
	return texts(p.Instructions, func(i plans.Instruction) string { return i.Name }, func(i plans.Instruction) string {
		i.CommonInstruction = m.common(i.CommonInstruction)
		return m.value(i)
	})
}

func (m *Mask) periodics(p plans.Plan) map[string]string {
	return texts(p.PeriodicInstructions, func(i plans.PeriodicInstruction) string { return i.Name }, func(i plans.PeriodicInstruction) string {
		i.CommonInstruction = m.common(i.CommonInstruction)
		return m.value(i)
	})
}

func (m *Mask) probes(p plans.Plan) map[string]string {
	out := map[string]string{}
	for name, probe := range p.Probes {
		out[name] = m.value(probe)
	}
	return out
}

// pairs compares labels, or taints by what they say.
func pairs(what string, p Pair) []Change {
	var out []Change
	for _, key := range slices.Sorted(maps.Keys(p.After)) {
		was, existed := p.Before[key]
		switch {
		case !existed:
			out = append(out, Change{What: what, Name: key + "=" + p.After[key], Kind: Add})
		case was != p.After[key]:
			out = append(out, Change{What: what, Name: key + "=" + p.After[key], Kind: Modify})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.Before)) {
		if _, exists := p.After[key]; !exists {
			out = append(out, Change{What: what, Name: key + "=" + p.Before[key], Kind: Remove})
		}
	}
	return out
}
