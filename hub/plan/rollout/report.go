package rollout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/drover-dev/drover/plans"
)

// Progress is the state of the plan that was delivered to a machine.
type Progress string

// The states of a plan.
const (
	// ProgressNone means that no plan was delivered yet.
	ProgressNone Progress = ""
	// ProgressPending means that the agent has not started to apply the plan.
	ProgressPending Progress = "pending"
	// ProgressApplying means that the agent is applying the plan.
	ProgressApplying Progress = "applying"
	// ProgressApplied means that the agent has applied the plan.
	ProgressApplied Progress = "applied"
	// ProgressFailed means that applying the plan failed as often as it may.
	ProgressFailed Progress = "failed"
	// ProgressPaused means that somebody other than the hub has paused the plan.
	ProgressPaused Progress = "paused"
	// ProgressCanceled means that somebody other than the hub has canceled the plan.
	ProgressCanceled Progress = "canceled"
)

// Report is what an agent has reported about its plan, from the data of its plan Secret.
type Report struct {
	// Progress of the delivered plan.
	Progress Progress
	// Status is everything that the agent has reported.
	Status plans.Status
	// Delivered is the plan; the zero plan when none was delivered.
	Delivered plans.Plan
	// Checksum of the delivered plan; empty when there is none.
	Checksum string
	// Unhealthy are the probes of the delivered plan that the agent found unhealthy, HealthUnknown those that it has not run yet. Both are
	// sorted.
	Unhealthy, HealthUnknown []string
}

// NotHealthy are all probes that are not known to be healthy, sorted.
func (r Report) NotHealthy() []string { return notHealthy(r.Unhealthy, r.HealthUnknown) }

func notHealthy(unhealthy, unknown []string) []string {
	all := slices.Concat(unhealthy, unknown)
	slices.Sort(all)
	return all
}

// FailedOutput is the end of what the instructions printed that have failed, for messages; empty where nothing has failed, or nothing was
// printed.
func (r Report) FailedOutput() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(r.Status.FailedOutput)) {
		if tail := tailOf(r.Status.FailedOutput[name]); tail != "" {
			all = append(all, fmt.Sprintf("output of instruction %s: %s", name, tail))
		}
	}
	return strings.Join(all, "; ")
}

// tailOf is the end of an output, on one line and without control characters: a condition is no log.
func tailOf(output []byte) string {
	const maxRunes = 300
	text := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(output), ""))
	runes := []rune(strings.Join(strings.Fields(text), " "))
	if len(runes) > maxRunes {
		return "…" + string(runes[len(runes)-maxRunes:])
	}
	return string(runes)
}

// EtcdProbe is the state of etcd. k3s has no etcd probe: there etcd runs in the process of kubelet and API server, and so is healthy where
// one of them is, and unhealthy where both are.
func (r Report) EtcdProbe() ProbeState {
	if _, own := r.Delivered.Probes[probeEtcd]; own {
		return r.probe(probeEtcd)
	}
	states := []ProbeState{r.probe(probeKubelet), r.probe(probeAPIServer)}
	for _, state := range []ProbeState{ProbeHealthy, ProbeUnknown, ProbeUnhealthy} {
		if slices.Contains(states, state) {
			return state
		}
	}
	return ProbeNone
}

func (r Report) probe(name string) ProbeState {
	switch {
	case slices.Contains(r.Unhealthy, name):
		return ProbeUnhealthy
	case slices.Contains(r.HealthUnknown, name):
		return ProbeUnknown
	}
	if _, probed := r.Delivered.Probes[name]; probed {
		return ProbeHealthy
	}
	return ProbeNone
}

// CheckedIn reports whether the agent has reported anything.
func (r Report) CheckedIn() bool { return r.Status.Reported() }

// ReadReport reads the data of a plan Secret, of either protocol: from agents that keep the plan's state, and from older ones that report
// checksums only and leave the state as the hub wrote it. An error means that agent or hub wrote something that cannot be decoded.
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
		switch probe, probed := status.ProbeStatuses[name]; {
		case !probed:
			r.HealthUnknown = append(r.HealthUnknown, name)
		case !probe.Healthy:
			r.Unhealthy = append(r.Unhealthy, name)
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
		// An agent that counts revisions keeps the state, so this plan has yet to be applied, even if the same one was applied before.
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
