package figures

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// row is a line of the table: a figure of each run.
type row struct {
	name  string
	value func(Run) string
}

var rows = []row{
	{"Clusters", func(r Run) string { return fmt.Sprint(r.Clusters) }},
	{"Hub ready after", func(r Run) string { return seconds(r.Started.Seconds()) }},
	{"Idle: resident memory", func(r Run) string { return mebibytes(r.Idle.Resident) }},
	{"Idle: CPU", func(r Run) string { return cores(r.Idle.Cores()) }},
	{"Idle: writes", func(r Run) string { return perMinute(r.Idle.WritesPerMinute()) }},
	{"Provision: CPU", func(r Run) string { return seconds(r.Provision.CPU.Seconds()) }},
	{"Provision: CPU for each machine", func(r Run) string { return seconds(r.Provision.CPU.Seconds() / float64(r.Machines)) }},
	{"Provision: writes", func(r Run) string { return fmt.Sprint(r.Provision.Writes) }},
	{"Provision: writes for each machine", func(r Run) string { return fmt.Sprintf("%.1f", float64(r.Provision.Writes)/float64(r.Machines)) }},
	{"Provision: resident memory", func(r Run) string { return mebibytes(r.Provision.Resident) }},
	{"Change: CPU", func(r Run) string { return seconds(r.Change.CPU.Seconds()) }},
	{"Change: CPU for each machine", func(r Run) string { return seconds(r.Change.CPU.Seconds() / float64(r.Machines)) }},
	{"Change: writes", func(r Run) string { return fmt.Sprint(r.Change.Writes) }},
	{"Change: writes for each machine", func(r Run) string { return fmt.Sprintf("%.1f", float64(r.Change.Writes)/float64(r.Machines)) }},
	{"Upgrade: CPU for each machine", func(r Run) string { return seconds(r.Upgrade.CPU.Seconds() / float64(r.Machines)) }},
	{"Upgrade: writes for each machine", func(r Run) string { return fmt.Sprintf("%.1f", float64(r.Upgrade.Writes)/float64(r.Machines)) }},
	{"Upgrade: CPU of the hub's controllers and gateway for each machine", func(r Run) string {
		return fmt.Sprintf("%.0f ms", 1000*r.Upgrade.ByShare()[ShareHub].Seconds()/float64(r.Machines))
	}},
	{"Upgrade: writes by the hub's controllers for each machine", func(r Run) string {
		return fmt.Sprintf("%.1f", r.Upgrade.ByHub()/float64(r.Machines))
	}},
	{"Rest: resident memory", func(r Run) string { return mebibytes(r.Rest.Resident) }},
	{"Rest: live heap", func(r Run) string { return mebibytes(r.Rest.Heap) }},
	{"Rest: CPU", func(r Run) string { return cores(r.Rest.Cores()) }},
	{"Rest: writes", func(r Run) string { return perMinute(r.Rest.WritesPerMinute()) }},
}

func seconds(s float64) string     { return fmt.Sprintf("%.2f s", s) }
func cores(c float64) string       { return fmt.Sprintf("%.3f cores", c) }
func perMinute(n float64) string   { return fmt.Sprintf("%.1f/min", n) }
func mebibytes(bytes int64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// cells are the table of all figures: a line for each, a column for each run.
func cells(runs []Run) [][]string {
	head := []string{"machines"}
	for _, r := range runs {
		head = append(head, fmt.Sprint(r.Machines))
	}
	out := [][]string{head}
	if len(runs) > 0 {
		for _, m := range runs[0].Milestones {
			line := []string{"Time until " + m.Name}
			for _, r := range runs {
				line = append(line, seconds(r.Milestone(m.Name).Seconds()))
			}
			out = append(out, line)
		}
	}
	for _, row := range rows {
		line := []string{row.name}
		for _, r := range runs {
			line = append(line, row.value(r))
		}
		out = append(out, line)
	}
	return out
}

// Table shows all runs, for a terminal.
func Table(runs []Run) string { return align(cells(runs)) }

// growthCells are the table of how figures grow.
func growthCells(growth []Growth, limit float64) [][]string {
	out := [][]string{{"for each machine", "lower half", "upper half", "times", "limit"}}
	for _, g := range growth {
		line := []string{strings.TrimSpace(g.Figure.Name + " " + g.Figure.Unit), fmt.Sprintf("%.3g", g.Lower), fmt.Sprintf("%.3g", g.Upper)}
		switch {
		case g.Figure.Negligible < 0:
			line = append(line, "", "not judged")
		case g.Upper <= g.Figure.Negligible:
			line = append(line, "", fmt.Sprintf("up to %.3g is negligible", g.Figure.Negligible))
		default:
			line = append(line, fmt.Sprintf("%.2f", g.Ratio()), fmt.Sprintf("%.2f", limit))
		}
		out = append(out, line)
	}
	return out
}

// GrowthTable shows how figures grow, for a terminal.
func GrowthTable(growth []Growth, limit float64) string { return align(growthCells(growth, limit)) }

func align(lines [][]string) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, line := range lines {
		_, _ = fmt.Fprintln(w, strings.Join(line, "\t")) // a Builder does not fail
	}
	_ = w.Flush()
	return out.String()
}

// Describe is what is printed when a phase is over.
func (p Phase) Describe(name string, reached []Milestone) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-10s %6.1f s, CPU %.2f s (%.3f cores), %d writes, %s resident, %s live heap\n", name, p.Duration.Seconds(), p.CPU.Seconds(),
		p.Cores(), p.Writes, mebibytes(p.Resident), mebibytes(p.Heap))
	for _, m := range reached {
		fmt.Fprintf(&out, "    %6.1f s  %s\n", m.After.Seconds(), m.Name)
	}
	for _, resource := range Top(p.ByResource, 8) {
		fmt.Fprintf(&out, "    %6.0f writes of %s\n", p.ByResource[resource], resource)
	}
	for _, writer := range Top(p.Writers, 16) {
		fmt.Fprintf(&out, "    %6.0f times %s\n", p.Writers[writer], writer)
	}
	return out.String()
}
