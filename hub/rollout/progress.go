package rollout

import (
	"fmt"
	"maps"
	"slices"

	"github.com/drover-dev/drover/plans"
)

// Progress is how far an agent is with the plan that was delivered to it.
type Progress string

// The steps of a plan's way.
const (
	// ProgressNone means that no plan was delivered yet.
	ProgressNone Progress = ""
	// ProgressPending means that the agent has not taken the plan yet.
	ProgressPending Progress = "pending"
	// ProgressApplying means that the agent is at it.
	ProgressApplying Progress = "applying"
	ProgressApplied  Progress = "applied"
	ProgressFailed   Progress = "failed"
	// ProgressPaused and ProgressCanceled are states that somebody else asked the agent for.
	ProgressPaused   Progress = "paused"
	ProgressCanceled Progress = "canceled"
)

// Report is what an agent has said about its plan.
type Report struct {
	Progress Progress
	Status   plans.Status
	// Delivered is the plan; the zero plan when none was delivered.
	Delivered plans.Plan
	// Checksum of the delivered plan; empty when there is none.
	Checksum string
	// Unhealthy are the probes of the delivered plan that are not known to be healthy, sorted.
	Unhealthy []string
	// Sick are those of them that the agent has found unhealthy; it has not looked at the others yet.
	Sick []string
}

// EtcdProbe is what the agent says of etcd. k3s has no probe of etcd's own: there it runs in the process of kubelet and API server, so that it
// runs where one of them is healthy, and does not where all of them are unhealthy.
func (r Report) EtcdProbe() ProbeState {
	if _, own := r.Delivered.Probes[probeEtcd]; own {
		return r.probe(probeEtcd)
	}
	states := map[ProbeState]bool{}
	for _, name := range []string{probeKubelet, probeAPIServer} {
		states[r.probe(name)] = true
	}
	for _, state := range []ProbeState{ProbeHealthy, ProbeUnknown, ProbeUnhealthy} {
		if states[state] {
			return state
		}
	}
	return ProbeNone
}

func (r Report) probe(name string) ProbeState {
	switch {
	case slices.Contains(r.Sick, name):
		return ProbeUnhealthy
	case slices.Contains(r.Unhealthy, name):
		return ProbeUnknown
	}
	if _, probed := r.Delivered.Probes[name]; probed {
		return ProbeHealthy
	}
	return ProbeNone
}

// CheckedIn tells whether the agent has reported anything.
func (r Report) CheckedIn() bool {
	return r.Status.AppliedChecksum != "" || r.Status.FailedChecksum != "" || r.Status.Revision > 0
}

// ReadReport reads the data of a plan Secret. Agents of either protocol are understood: those that keep the plan's state, and older
// ones that only tell checksums and leave the state as the hub wrote it.
func ReadReport(data plans.SecretData) (Report, error) {
	delivery := plans.DecodeDelivery(data)
	status, err := plans.DecodeStatus(data)
	if err != nil {
		return Report{}, fmt.Errorf("reading the agent's report: %w", err)
	}
	r := Report{Status: status, Checksum: delivery.Checksum()}
	if len(delivery.Plan) == 0 {
		return r, nil
	}
	if r.Delivered, err = plans.Decode(delivery.Plan); err != nil {
		return Report{}, err
	}
	r.Progress = progress(status, r.Checksum, plans.FailureThreshold(data))
	for _, name := range slices.Sorted(maps.Keys(r.Delivered.Probes)) {
		probe, probed := status.ProbeStatuses[name]
		if !probe.Healthy {
			r.Unhealthy = append(r.Unhealthy, name)
		}
		if probed && !probe.Healthy {
			r.Sick = append(r.Sick, name)
		}
	}
	return r, nil
}

func progress(s plans.Status, checksum string, threshold int) Progress {
	switch s.State {
	case plans.StateSucceeded:
		return ProgressApplied
	case plans.StateInProgress:
		return ProgressApplying
	case plans.StateFailed:
		return ProgressFailed
	case plans.StatePaused:
		return ProgressPaused
	case plans.StateCanceled, plans.StateCancelled:
		return ProgressCanceled
	case plans.StatePending:
		// An agent that counts revisions keeps the state, so a pending plan is one that it has yet to run, even if it ran the same before.
		if s.Revision > 0 {
			return ProgressPending
		}
	}
	switch {
	case s.AppliedChecksum == checksum:
		return ProgressApplied
	case s.Failed(checksum, threshold):
		return ProgressFailed
	}
	return ProgressPending
}
