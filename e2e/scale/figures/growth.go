package figures

import (
	"fmt"
	"slices"
	"time"
)

// Phase is what a part of a run has used, and the memory at its end.
type Phase struct {
	Usage
	// Resident and Heap are those of the last sample.
	Resident, Heap int64
	// Writers are the requests that write, by who sent them, see ReadAudit.
	Writers map[string]float64
	// Samples is the processor time of samples, by who has used it, see Shares. They cover the phase but for its last seconds.
	Samples map[string]time.Duration
}

// NewPhase is the phase between two samples.
func NewPhase(from, to Sample) Phase {
	return Phase{Usage: to.Since(from), Resident: to.Resident, Heap: to.Heap}
}

// Milestone is how long a phase took to reach something with all machines.
type Milestone struct {
	Name  string
	After time.Duration
}

// Run is what was measured with one hub.
type Run struct {
	// Clusters is the number of clusters, Machines that of the machines of all their pools together.
	Clusters, Machines int
	// Started is how long the hub took to be ready.
	Started time.Duration
	// Idle is the hub without a cluster. Provision is from the creation of the Clusters to the end of all work for it, Change the same for a
	// change of the configuration of all machines. Upgrade is that of all machines to another version; it may be left out. Rest is after that.
	Idle, Provision, Change, Upgrade, Rest Phase
	// Milestones are those of Provision, Change and Upgrade, in their order.
	Milestones []Milestone
}

// Milestone returns the time of a milestone, or 0.
func (r Run) Milestone(name string) time.Duration {
	for _, m := range r.Milestones {
		if m.Name == name {
			return m.After
		}
	}
	return 0
}

// Figure is one number of a run.
type Figure struct {
	// Name and Unit are for readers, File is the name of its plot.
	Name, Unit, File string
	// Value is the figure of the whole run.
	Value func(Run) float64
	// Negligible is the marginal value for each machine below which growth is not judged, since a measurement of it says nothing. It is
	// negative for a figure that is not judged at all.
	Negligible float64
}

// Figures are those that are plotted, and all that are judged.
var Figures = []Figure{
	{"CPU to provision", "s", "provision-cpu", func(r Run) float64 { return r.Provision.CPU.Seconds() }, 0.02},
	{"Writes to provision", "", "provision-writes", func(r Run) float64 { return float64(r.Provision.Writes) }, 1},
	{"CPU for a change", "s", "change-cpu", func(r Run) float64 { return r.Change.CPU.Seconds() }, 0.02},
	{"Writes for a change", "", "change-writes", func(r Run) float64 { return float64(r.Change.Writes) }, 1},
	{"CPU for an upgrade", "s", "upgrade-cpu", func(r Run) float64 { return r.Upgrade.CPU.Seconds() }, 0.02},
	{"Writes for an upgrade", "", "upgrade-writes", func(r Run) float64 { return float64(r.Upgrade.Writes) }, 1},
	{"CPU at rest", "cores", "rest-cpu", func(r Run) float64 { return r.Rest.Cores() }, 0.0005},
	{"Writes at rest", "per minute", "rest-writes", func(r Run) float64 { return r.Rest.WritesPerMinute() }, 0.1},
	{"Resident memory at rest", "MiB", "rest-memory", func(r Run) float64 { return float64(r.Rest.Resident) / (1 << 20) }, -1},
}

// Growth is how a figure grows with the number of machines.
type Growth struct {
	Figure Figure
	// Lower and Upper are the figure's marginal values for each machine, in the lower and in the upper half of the sizes.
	Lower, Upper float64
}

// Ratio is how much more a machine costs in the upper half. What is negligible counts as much as the largest value that is.
func (g Growth) Ratio() float64 {
	if g.Figure.Negligible < 0 || g.Upper <= g.Figure.Negligible {
		return 1
	}
	return g.Upper / max(g.Lower, g.Figure.Negligible)
}

// MinSizes is the number of sizes below which nothing can be said about growth.
const MinSizes = 3

// Evaluate returns the growth of all figures, and an error that names those that grow by more than most in the upper half of the sizes, as
// a multiple of the lower half. Fixed costs are in neither.
func Evaluate(runs []Run, most float64) ([]Growth, error) {
	runs = slices.SortedFunc(slices.Values(runs), func(a, b Run) int { return a.Machines - b.Machines })
	if len(runs) < MinSizes {
		return nil, fmt.Errorf("growth needs %d sizes, got %d", MinSizes, len(runs))
	}
	first, middle, last := runs[0], runs[len(runs)/2], runs[len(runs)-1]
	var growth []Growth
	var faults []string
	for _, f := range Figures {
		g := Growth{Figure: f, Lower: marginal(f, first, middle), Upper: marginal(f, middle, last)}
		growth = append(growth, g)
		if ratio := g.Ratio(); ratio > most {
			faults = append(faults, fmt.Sprintf("%s: %.3g for each machine up to %d, %.3g beyond (%.1f times, at most %.1f)",
				f.Name, g.Lower, middle.Machines, g.Upper, ratio, most))
		}
	}
	if len(faults) > 0 {
		return growth, &NotLinearError{Faults: faults}
	}
	return growth, nil
}

func marginal(f Figure, small, large Run) float64 {
	return (f.Value(large) - f.Value(small)) / float64(max(large.Machines-small.Machines, 1))
}

// NotLinearError says that a machine costs more the more machines there are.
type NotLinearError struct {
	// Faults has a line for each figure.
	Faults []string
}

func (e *NotLinearError) Error() string {
	return fmt.Sprintf("growth is not linear: %q", e.Faults)
}
