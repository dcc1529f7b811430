// Package certificates decides what follows from the ends of a cluster's certificates, as the agents of its machines report them: the
// condition of the control plane, and when the hub has certificates replaced that no user has asked for. It is pure: values in, values out,
// no client, no clock.
package certificates

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

const (
	// WarnBefore is how long before its end a certificate is to be replaced. k3s and RKE2 renew one at a start that is in the last 90 to 120
	// days, so that only a cluster in which nothing restarts comes so far.
	WarnBefore = rkev1.CertificatesExpireSoon
	// maxDelay is the time over which the clusters are spread whose certificates end at the same time.
	maxDelay = 24 * time.Hour
	// evidenceTTL is how long after its agent was seen a machine's report counts. The gateway records every few minutes that it sees an agent,
	// and agents open their watch again after at most 10 minutes.
	evidenceTTL = 15 * time.Minute
	// successInterval is the time after an attempt of the hub that has succeeded. It limits how often a machine that reports what is not
	// true, or certificates of a short life, have the servers restarted.
	successInterval = 7 * 24 * time.Hour
	// attemptInterval is the time between two attempts to replace certificates; after the second that has failed for the same certificate it
	// is twice that, and so on: each attempt restarts servers.
	attemptInterval = 24 * time.Hour
)

// The reasons of the condition CertificatesValid. They are API.
const (
	// ReasonValid is that of a cluster whose certificates end later than WarnBefore.
	ReasonValid = "CertificatesValid"
	// ReasonExpireSoon is that of a cluster with a certificate that ends within WarnBefore.
	ReasonExpireSoon = "CertificatesExpireSoon"
	// ReasonExpired is that of a cluster with a certificate that has ended.
	ReasonExpired = "CertificatesExpired"
)

// authoritiesPage says how to replace the authorities of a cluster.
const authoritiesPage = "https://github.com/drover-dev/drover/blob/main/docs/day-two.md#rotate-the-certificate-authorities"

// timeFormat is that of times in messages.
const timeFormat = "2006-01-02 15:04:05 MST"

// Certificate is one that a component of a machine presents, or has in a file.
type Certificate struct {
	// Machine is the name of the Machine; empty for an authority of the cluster.
	Machine string
	// Name is whose certificate it is, "the certificate of kube-scheduler", "the certificate of kubelet (serving-kubelet.crt)"; empty if only
	// the machine is known.
	Name string
	// End is when it ends.
	End time.Time
	// Rotated is set for one that a CertificateRotation replaces; others are files of the user's.
	Rotated bool
	// Seen is when the agent that has reported it was last seen; zero for what is only remembered.
	Seen time.Time
}

// Reported are the certificates in an agent's report; false if it does not tell all of them, since a probe has not been run since the plan
// was delivered, or the agent is of another make. rotated are the probes whose certificates a CertificateRotation replaces, files those
// with certificates that it replaces, and whose they are. A machine has not all of the files, so that none is missed in a report.
func Reported(machine string, report rollout.Report, rotated []string, files map[string]string, seen time.Time) (out []Certificate,
	complete bool) {
	complete = true
	add := func(name string, end time.Time, rotated bool) {
		out = append(out, Certificate{Machine: machine, Name: name, End: end, Rotated: rotated, Seen: seen})
		complete = complete && !end.IsZero()
	}
	for _, name := range slices.Sorted(maps.Keys(report.Delivered.Probes)) {
		get, status := report.Delivered.Probes[name].HTTPGet, report.Status.ProbeStatuses[name]
		if !strings.HasPrefix(get.URL, "https://") {
			continue
		}
		add("the certificate of "+name, status.ServerCertificateNotAfter, slices.Contains(rotated, name))
		if get.ClientCert != "" && !get.Insecure {
			add("the client certificate of the probe of "+name, status.ClientCertificateNotAfter, slices.Contains(rotated, name))
		}
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if end := report.Status.ProbeStatuses[plans.CertificateName(file)].CertificateNotAfter; !end.IsZero() {
			add("the certificate of "+files[file]+" ("+path.Base(file)+")", end, true)
		}
	}
	return out, complete && len(out) > 0
}

// Earliest is the certificate that ends first; false for none.
func Earliest(all []Certificate) (Certificate, bool) {
	if len(all) == 0 {
		return Certificate{}, false
	}
	return slices.MinFunc(all, func(a, b Certificate) int {
		return cmp.Or(a.End.Compare(b.End), cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Name, b.Name))
	}), true
}

// Condition is the condition CertificatesValid of a control plane, false where no certificate is known, and when it will be another if
// nothing else changes; 0 for never. rotations are all of the cluster.
func Condition(now time.Time, all []Certificate, rotations []*operationv1.CertificateRotation) (c metav1.Condition, known bool,
	again time.Duration) {
	first, known := Earliest(all)
	c = metav1.Condition{Type: rkev1.CertificatesValidCondition, Status: metav1.ConditionTrue, Reason: ReasonValid}
	at, left := first.End.UTC().Format(timeFormat), first.End.Sub(now)
	what := cmp.Or(first.Name, "a certificate")
	if first.Machine != "" {
		what += " on Machine " + first.Machine
	}
	switch {
	case !known:
		return metav1.Condition{}, false, 0
	case left <= 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonExpired, fmt.Sprintf("%s has ended at %s", title(what), at)
	case left <= WarnBefore:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, ReasonExpireSoon, fmt.Sprintf("%s ends at %s", title(what), at)
		again = left
	default:
		c.Message = fmt.Sprintf("The first certificate to end is on Machine %s, at %s", first.Machine, at)
		return c, true, left - WarnBefore
	}
	switch {
	case first.Machine == "":
		c.Message += "; the hub does not replace it: see " + authoritiesPage
	case first.Name != "" && !first.Rotated:
		c.Message += "; it is in a file that the cluster's configuration names: replace that"
	case leftAsItWas(rotations, first):
		c.Message += "; a CertificateRotation has succeeded and left it as it was: check why the machine does not renew it"
	case !first.Seen.IsZero() && now.Sub(first.Seen) > evidenceTTL:
		c.Message += fmt.Sprintf("; the agent was last seen at %s: start the machine, and a CertificateRotation replaces it",
			first.Seen.UTC().Format(timeFormat))
	default:
		c.Message += "; a CertificateRotation replaces it"
	}
	if paused := pausedNames(rotations); len(paused) > 0 {
		c.Message += "; paused by spec.paused: CertificateRotation " + strings.Join(paused, ", ")
	}
	return c, true, again
}

func title(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// Due reports whether the certificates are to be replaced now, and for which one; and when to ask again, if nothing else changes. rotations
// are all of the cluster.
//
// Only what an agent has reported that was seen lately counts: a certificate may have been replaced since. After an attempt, whoever has
// made it, the next one is a day later, or more after one of the hub's that has succeeded, or several that have failed; none follows for a
// certificate that one was made for, and which it has left as it was. One that was paused before it began counts as an attempt at the time
// of its creation, and keeps no other one from beginning.
//
// delay is how much later than WarnBefore that is: see Delay.
func Due(now time.Time, all []Certificate, rotations []*operationv1.CertificateRotation, delay time.Duration) (first Certificate, due bool,
	again time.Duration) {
	all = slices.DeleteFunc(slices.Clone(all), func(c Certificate) bool {
		return !c.Rotated || c.Seen.IsZero() || now.Sub(c.Seen) > evidenceTTL || leftAsItWas(rotations, c)
	})
	first, known := Earliest(all)
	if !known {
		return first, false, 0
	}
	if left := first.End.Sub(now) + delay; left > WarnBefore {
		return first, false, left - WarnBefore
	}
	failed := 0
	for _, op := range rotations {
		if phaseOf(op) == operationv1.PhaseFailed && isFor(op, first) {
			failed++
		}
	}
	for _, op := range rotations {
		status := op.Status
		if !phaseOf(op).Ended() && !suspended(op) {
			return first, false, 0 // its end causes the next decision
		}
		last := op.CreationTimestamp.Time
		if status.TerminatedAt != nil && status.TerminatedAt.After(last) {
			last = status.TerminatedAt.Time
		}
		interval := attemptInterval
		switch end, ours := op.Annotations[operationv1.CertificatesExpiryAnnotation]; {
		case ours && phaseOf(op) == operationv1.PhaseSucceeded:
			interval = successInterval
		case ours && end == FormatTime(first.End):
			interval *= time.Duration(max(1, failed))
		}
		again = max(again, interval-now.Sub(last))
	}
	return first, again <= 0, max(again, 0)
}

// Delay is always the same for a cluster, and less than maxDelay. Clusters that were made or upgraded on one day would restart their
// servers in the same hour otherwise, and nobody would notice a failure before all of them had.
func Delay(cluster types.UID) time.Duration {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(cluster)) // never fails
	return time.Duration(hash.Sum32()%uint32(maxDelay/time.Second)) * time.Second
}

// suspended reports whether a CertificateRotation was paused before it began.
func suspended(op *operationv1.CertificateRotation) bool {
	phase := phaseOf(op)
	return op.Spec.Paused && !phase.Ended() && phase != operationv1.PhaseInProgress
}

// pausedNames are the CertificateRotations that do not go on, or begin, before a user ends their pause.
func pausedNames(rotations []*operationv1.CertificateRotation) (names []string) {
	for _, op := range rotations {
		if op.Spec.Paused && !phaseOf(op).Ended() {
			names = append(names, op.Name)
		}
	}
	slices.Sort(names)
	return names
}

// leftAsItWas reports whether a CertificateRotation that the hub has created for a certificate has succeeded, and has not left out its
// machine.
func leftAsItWas(rotations []*operationv1.CertificateRotation, c Certificate) bool {
	return slices.ContainsFunc(rotations, func(op *operationv1.CertificateRotation) bool {
		return phaseOf(op) == operationv1.PhaseSucceeded && isFor(op, c) &&
			!slices.ContainsFunc(op.Status.Machines, func(m operationv1.MachineStatus) bool {
				return m.Name == c.Machine && m.Phase == operationv1.PhaseCanceled
			})
	})
}

// isFor reports whether the hub has created a CertificateRotation for a certificate, by its end.
func isFor(op *operationv1.CertificateRotation, c Certificate) bool {
	return op.Annotations[operationv1.CertificatesExpiryAnnotation] == FormatTime(c.End)
}

func phaseOf(op *operationv1.CertificateRotation) operationv1.Phase {
	if op.Status.Phase.Ended() {
		return op.Status.Phase
	}
	return cmp.Or(operationv1.Phase(op.Annotations[operationv1.EndedAnnotation]), op.Status.Phase)
}

// FormatTime is the form of times in annotations.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
