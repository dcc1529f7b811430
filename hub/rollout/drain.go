package rollout

// DrainOptions are how the machines of a role are drained.
type DrainOptions struct {
	// Enabled is set where machines are drained before a change that workloads notice, Hooks where somebody wants to be asked before and
	// after.
	Enabled, Hooks bool
	// Options are the options as JSON, as the annotation rke.cattle.io/drain-options holds them: the same options are always the same bytes.
	Options string
	// HooksOnly are the same options with draining disabled, for a machine that has nowhere to drain to.
	HooksOnly string
}

// Drain is how far a machine's drain is. The values are those of the annotations of its plan Secret.
type Drain struct {
	// Asked are the options that a drain was asked for with; empty if none was.
	Asked string
	// Done are the options of the drain that is done.
	Done string
	// Error says why the drain does not get on; empty if it does.
	Error string
	// Uncordon equals Asked once the end of the drain was asked for. All four are empty when that is done.
	Uncordon string
}

// Drained tells whether the drain that was asked for is done, and its end was not asked for yet.
func (d Drain) Drained() bool { return d.Asked != "" && d.Done == d.Asked && d.Uncordon == "" }
