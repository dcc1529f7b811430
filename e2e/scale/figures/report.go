package figures

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Report is what a run of all sizes is written down as.
type Report struct {
	Runs []Run
	// PoolSize is how many workers a pool has at most.
	PoolSize int
	// Growth is empty for fewer than MinSizes sizes, Limit the ratio that it may have.
	Growth []Growth
	Limit  float64
	// When and Machine say when and on what was measured.
	When    time.Time
	Machine string
}

// Write writes the report as Markdown to a file, and a plot of each figure into a directory beside it, with the name of the file without
// its suffix.
func (r Report) Write(path string) error {
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	dir := filepath.Join(filepath.Dir(path), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, f := range Figures {
		if err := os.WriteFile(filepath.Join(dir, f.File+".svg"), []byte(Plot(f, r.Runs)), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte(r.Markdown(name)), 0o644)
}

const introduction = `# Scale

What a hub needs for a cluster of many machines, as ` + "`make scale`" + ` has measured it.

A hub with its embedded API server, a k3s cluster of one server and workers in pools of at most %d. The workers are machines of Cluster
API's Dev provider, in memory; their agents, and the Kubernetes API of the cluster with its Nodes, are played by the simulator, which uses
the agent's own client. CPU and memory are those of the hub's process: controllers, gateway, Cluster API, API server and etcd, and what they
do for the provider and for the simulator. Writes are revisions of etcd, whoever caused them.

- Provision: from the creation of the Cluster until all machines are ready and the hub is at rest, for at least 15 s more.
- Change: a label for all Nodes, which restarts nothing; until all machines have applied it and the hub is at rest.
- Upgrade: of all machines to another version, a tenth of the workers at a time, without drain; until all run it and the
  hub is at rest.
- Rest: after that. Kubelets update the status of their Nodes every 5 minutes; agents report nothing.

Agents take a second to apply a plan. They run no program, hold no tunnel, and report no certificates and no output of instructions.
`

// Markdown is the page. Its plots are in the directory dir beside it.
func (r Report) Markdown(dir string) string {
	var out strings.Builder
	fmt.Fprintf(&out, introduction+"\nMeasured on %s on %s.\n\n## Figures\n\n", r.PoolSize, r.When.Format("2 January 2006, 15:04 MST"), r.Machine)
	out.WriteString(markdownTable(cells(r.Runs)))
	if len(r.Growth) > 0 {
		out.WriteString("\n## Growth\n\nWhat one more machine costs, in the lower and in the upper half of the sizes. Fixed costs are in neither.\n\n")
		out.WriteString(markdownTable(growthCells(r.Growth, r.Limit)))
	}
	out.WriteString("\n## Who uses the processor\n\nCPU for each machine of the largest cluster, from profiles; what the garbage collector uses is " +
		"distributed over all in proportion. The API server works for the hub, for Cluster API, for the provider and for the simulator.\n\n")
	out.WriteString(markdownTable(shareCells(r.Runs)))
	out.WriteString("\n## What is written\n\nThe most frequent for each machine of the largest cluster. Writes to etcd by resource, those that failed too:\n\n")
	out.WriteString(markdownTable(mostFrequent(r.Runs, "resource", func(p Phase) map[string]float64 { return p.ByResource })))
	out.WriteString("\nRequests that write, by field owner or program; 409 is a conflict:\n\n")
	out.WriteString(markdownTable(mostFrequent(r.Runs, "request", func(p Phase) map[string]float64 { return p.Writers })))
	out.WriteString("\n## Plots\n\nThe dashed line continues the first two sizes.\n")
	for _, f := range Figures {
		fmt.Fprintf(&out, "\n![%s](%s/%s.svg)\n", f.Name, dir, f.File)
	}
	return out.String()
}

// maxLines is the number of lines of a list of what is most frequent.
const maxLines = 20

// mostFrequent is a table of counts of the last run for each machine.
func mostFrequent(runs []Run, name string, counts func(Phase) map[string]float64) [][]string {
	out := [][]string{{name, "provision", "change", "upgrade"}}
	if len(runs) == 0 {
		return out
	}
	last := runs[len(runs)-1]
	provision, change, upgrade := counts(last.Provision), counts(last.Change), counts(last.Upgrade)
	each := func(count float64) string { return fmt.Sprintf("%.1f", count/float64(last.Machines)) }
	for _, key := range Top(provision, maxLines) {
		out = append(out, []string{key, each(provision[key]), each(change[key]), each(upgrade[key])})
	}
	return out
}

// shareCells are the table of who has used the processor in the last run, for each machine.
func shareCells(runs []Run) [][]string {
	out := [][]string{{"", "provision", "change", "upgrade"}}
	if len(runs) == 0 {
		return out
	}
	last := runs[len(runs)-1]
	for _, share := range Shares {
		line := []string{share}
		for _, p := range []Phase{last.Provision, last.Change, last.Upgrade} {
			line = append(line, fmt.Sprintf("%.0f ms", 1000*p.ByShare()[share].Seconds()/float64(last.Machines)))
		}
		out = append(out, line)
	}
	return out
}

func markdownTable(lines [][]string) string {
	var out strings.Builder
	for i, line := range lines {
		fmt.Fprintf(&out, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			out.WriteString("|" + strings.Repeat("---|", len(line)) + "\n")
		}
	}
	return out.String()
}
