package preview

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

var signs = map[Kind]string{Add: "+", Modify: "~", Remove: "-"}

// Write writes the report for people.
func (r *Report) Write(out io.Writer) error {
	var w strings.Builder
	r.writeSummary(&w)
	for _, line := range r.Problems {
		fmt.Fprintf(&w, "PROBLEM  %s\n", line)
	}
	for _, line := range r.Warnings {
		fmt.Fprintf(&w, "warning  %s\n", line)
	}
	for _, p := range r.Pools {
		fmt.Fprintf(&w, "\nMachine pool %s: %s\n", p.Name, p.Impact)
		for _, note := range p.Notes {
			fmt.Fprintf(&w, "  %s\n", note)
		}
	}
	r.writeMachines(&w)
	if len(r.Order) > 0 {
		fmt.Fprintf(&w, "\nOrder, if every change succeeds:\n")
		for i, group := range r.Order {
			fmt.Fprintf(&w, "  %d. %s\n", i+1, strings.Join(group, ", "))
		}
	}
	_, err := io.WriteString(out, w.String())
	return err
}

func (r *Report) writeSummary(w io.Writer) {
	changing := 0
	for _, m := range r.Machines {
		if m.Impact != ImpactNone || len(m.Changes) > 0 {
			changing++
		}
	}
	noun := "machines"
	if len(r.Machines) == 1 {
		noun = "machine"
	}
	switch {
	case r.Waiting != "":
		fmt.Fprintf(w, "Cluster %s: rendering plans is not possible yet. %s\n", r.Cluster, r.Waiting)
	case !r.Changes:
		fmt.Fprintf(w, "Cluster %s: no change on its %d %s\n", r.Cluster, len(r.Machines), noun)
	default:
		fmt.Fprintf(w, "Cluster %s: %d of %d %s would change; most disruptive effect: %s\n", r.Cluster, changing, len(r.Machines), noun, r.Impact)
	}
}

// writeMachines writes machines that differ in the same way once.
func (r *Report) writeMachines(w io.Writer) {
	var shown []Machine
	for _, m := range r.Machines {
		if m.Impact == ImpactNone && len(m.Changes) == 0 && m.Problem == "" {
			continue
		}
		title := m.Name
		if len(m.Roles) > 0 {
			title += " (" + strings.Join(m.Roles, ", ") + ")"
		}
		fmt.Fprintf(w, "\n%s: %s\n", title, m.Impact)
		if m.Problem != "" {
			fmt.Fprintf(w, "  PROBLEM: %s\n", m.Problem)
		}
		if i := slices.IndexFunc(shown, func(other Machine) bool { return slices.Equal(other.Changes, m.Changes) }); i >= 0 &&
			len(m.Changes) > 0 {
			fmt.Fprintf(w, "  same as %s\n", shown[i].Name)
			continue
		}
		shown = append(shown, m)
		for _, c := range m.Changes {
			c.write(w)
		}
	}
}

func (c Change) write(w io.Writer) {
	fmt.Fprintf(w, "  %s %s %s\n", signs[c.Kind], c.What, c.Name)
	for line := range strings.Lines(c.Diff) {
		// The name is in the line above.
		if !strings.HasPrefix(line, "--- ") && !strings.HasPrefix(line, "+++ ") {
			fmt.Fprintf(w, "      %s\n", strings.TrimRight(line, "\n"))
		}
	}
}
