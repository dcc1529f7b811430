package certificates

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

var now = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

func TestReported(t *testing.T) {
	server, client := now.Add(300*day), now.Add(200*day)
	report := rollout.Report{
		Delivered: plans.Plan{Probes: map[string]plans.Probe{
			"kubelet":        {HTTPGet: plans.HTTPGetAction{URL: "http://127.0.0.1:10248/healthz"}},
			"kube-apiserver": {HTTPGet: plans.HTTPGetAction{URL: "https://127.0.0.1:6443/readyz", ClientCert: "a.crt", ClientKey: "a.key"}},
			"kube-scheduler": {HTTPGet: plans.HTTPGetAction{URL: "https://127.0.0.1:10259/healthz"}},
		}},
		Status: plans.Status{ProbeStatuses: map[string]plans.ProbeStatus{
			"kubelet":        {Healthy: true},
			"kube-apiserver": {ServerCertificateNotAfter: server, ClientCertificateNotAfter: client},
			"kube-scheduler": {ServerCertificateNotAfter: server},
		}},
	}
	got, complete := Reported("a", report, []string{"kube-apiserver"}, nil, now)
	first, _ := Earliest(got)
	if !complete || len(got) != 3 || !first.End.Equal(client) || !first.Rotated || !strings.Contains(first.Name, "kube-apiserver") {
		t.Errorf("got %+v, complete: %t", got, complete)
	}
	if got[2].Rotated || got[2].Name != "the certificate of kube-scheduler" {
		t.Errorf("got %+v", got[2])
	}
	// A probe that has not run since the plan was delivered.
	delete(report.Status.ProbeStatuses, "kube-scheduler")
	if _, complete := Reported("a", report, nil, nil, now); complete {
		t.Error("a report without kube-scheduler is complete")
	}
	// A worker.
	if got, complete := Reported("a", rollout.Report{}, nil, nil, now); got != nil || complete {
		t.Errorf("got %+v, complete: %t", got, complete)
	}
}

func TestReportedFiles(t *testing.T) {
	files := map[string]string{"/d/agent/client-kubelet.crt": "kubelet", "/d/agent/serving-kubelet.crt": "kubelet"}
	report := rollout.Report{Status: plans.Status{ProbeStatuses: map[string]plans.ProbeStatus{
		"kubelet": {Healthy: true},
		"certificate:/d/agent/client-kubelet.crt":   {Healthy: true, CertificateNotAfter: now.Add(day)},
		"certificate:/old/agent/client-kubelet.crt": {Healthy: true, CertificateNotAfter: now},
	}}}
	got, complete := Reported("w", report, nil, files, now)
	want := Certificate{Machine: "w", Name: "the certificate of kubelet (client-kubelet.crt)", End: now.Add(day), Rotated: true, Seen: now}
	if !complete || len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, complete: %t", got, complete)
	}
	// A server whose probes have not been run yet.
	report.Delivered.Probes = map[string]plans.Probe{"kube-scheduler": {HTTPGet: plans.HTTPGetAction{URL: "https://127.0.0.1:10259/healthz"}}}
	if got, complete := Reported("w", report, nil, files, now); complete {
		t.Errorf("%+v is complete", got)
	}
}

func TestCondition(t *testing.T) {
	if _, known, _ := Condition(now, nil, nil); known {
		t.Error("a condition without any certificate")
	}
	for name, tc := range map[string]struct {
		end     time.Duration
		rotated bool
		status  metav1.ConditionStatus
		reason  string
		text    string
		again   time.Duration
	}{
		"long":         {100 * day, true, metav1.ConditionTrue, ReasonValid, "2027-02-09 12:00:00 UTC", 40 * day},
		"soon":         {59 * day, true, metav1.ConditionFalse, ReasonExpireSoon, "The certificate of x on Machine a ends at", 59 * day},
		"at the limit": {60 * day, true, metav1.ConditionFalse, ReasonExpireSoon, "a CertificateRotation replaces it", 60 * day},
		"the user's":   {59 * day, false, metav1.ConditionFalse, ReasonExpireSoon, "configuration names", 59 * day},
		"left":         {50 * day, true, metav1.ConditionFalse, ReasonExpireSoon, "has succeeded and left it as it was", 50 * day},
		"over":         {-time.Second, true, metav1.ConditionFalse, ReasonExpired, "has ended at 2026-11-01 11:59:59 UTC", 0},
	} {
		t.Run(name, func(t *testing.T) {
			later := Certificate{Machine: "b", End: now.Add(500 * day)}
			c, known, again := Condition(now, []Certificate{later, {Machine: "a", Name: "the certificate of x", End: now.Add(tc.end),
				Rotated: tc.rotated}}, rotations(rotation(operationv1.PhaseSucceeded, -day, now.Add(50*day)), rotation(operationv1.PhaseFailed, -day,
				now.Add(59*day))))
			if !known || c.Status != tc.status || c.Reason != tc.reason || !strings.Contains(c.Message, tc.text) || again != tc.again {
				t.Errorf("got %+v, %t, again after %s", c, known, again)
			}
		})
	}
}

func rotation(phase operationv1.Phase, created time.Duration, expiry time.Time) *operationv1.CertificateRotation {
	op := &operationv1.CertificateRotation{}
	op.CreationTimestamp, op.Status.Phase = metav1.NewTime(now.Add(created)), phase
	if !expiry.IsZero() {
		op.Annotations = map[string]string{operationv1.CertificatesExpiryAnnotation: FormatTime(expiry)}
	}
	return op
}

func paused(op *operationv1.CertificateRotation) *operationv1.CertificateRotation {
	op.Spec.Paused = true
	return op
}

func rotations(all ...*operationv1.CertificateRotation) []*operationv1.CertificateRotation {
	return all
}

// TestConditionOfPaused: the condition names what a user has paused. One that has ended does not matter.
func TestConditionOfPaused(t *testing.T) {
	paused, ended := rotation(operationv1.PhasePending, -day, time.Time{}), rotation(operationv1.PhaseFailed, -day, time.Time{})
	paused.Name, paused.Spec.Paused, ended.Name, ended.Spec.Paused = "mine", true, "old", true
	soon := []Certificate{{Machine: "a", Name: "x", End: now.Add(10 * day), Rotated: true}}
	c, _, _ := Condition(now, soon, rotations(paused, ended))
	if !strings.HasSuffix(c.Message, "; paused by spec.paused: CertificateRotation mine") {
		t.Errorf("got %q", c.Message)
	}
}

// TestConditionOfMachineThatIsOff: nothing is replaced on a machine whose agent does not report.
func TestConditionOfMachineThatIsOff(t *testing.T) {
	for seen, want := range map[time.Duration]string{
		time.Minute: "; a CertificateRotation replaces it",
		time.Hour:   "; the agent was last seen at 2026-11-01 11:00:00 UTC: start the machine, and a CertificateRotation replaces it",
	} {
		c, _, _ := Condition(now, []Certificate{{Machine: "a", Name: "x", End: now.Add(-day), Rotated: true, Seen: now.Add(-seen)}}, nil)
		if c.Reason != ReasonExpired || !strings.HasSuffix(c.Message, want) || strings.Count(c.Message, ";") != 1 {
			t.Errorf("%s ago: got %q", seen, c.Message)
		}
	}
}

func TestDue(t *testing.T) {
	soon := Certificate{Machine: "a", Name: "x", End: now.Add(10 * day), Rotated: true, Seen: now.Add(-time.Minute)}
	with := func(change func(*Certificate)) Certificate {
		c := soon
		change(&c)
		return c
	}
	for name, tc := range map[string]struct {
		certificate Certificate
		rotations   []*operationv1.CertificateRotation
		due         bool
		again       time.Duration
	}{
		"soon":            {certificate: soon, due: true},
		"over":            {certificate: with(func(c *Certificate) { c.End = now.Add(-day) }), due: true},
		"long":            {certificate: with(func(c *Certificate) { c.End = now.Add(61 * day) }), again: day},
		"the user's":      {certificate: with(func(c *Certificate) { c.Rotated = false })},
		"old evidence":    {certificate: with(func(c *Certificate) { c.Seen = now.Add(-16 * time.Minute) })},
		"only remembered": {certificate: with(func(c *Certificate) { c.Seen = time.Time{} })},
		"one waits":       {certificate: soon, rotations: rotations(rotation("", -time.Hour, time.Time{}))},
		"one is paused":   {certificate: soon, rotations: rotations(paused(rotation("", -2*day, time.Time{}))), due: true},
		"one was paused now": {certificate: soon, rotations: rotations(paused(rotation(operationv1.PhasePending, -time.Hour, time.Time{}))),
			again: 23 * time.Hour},
		"one is paused in the middle": {certificate: soon,
			rotations: rotations(paused(rotation(operationv1.PhaseInProgress, -2*day, time.Time{})))},
		"one is in progress": {certificate: soon, rotations: rotations(rotation(operationv1.PhaseInProgress, -2*day, time.Time{}))},
		"one has failed today": {certificate: soon, rotations: rotations(rotation(operationv1.PhaseFailed, -time.Hour, soon.End)),
			again: 23 * time.Hour},
		"one has failed yesterday": {certificate: soon, rotations: rotations(rotation(operationv1.PhaseFailed, -day, soon.End)), due: true},
		"one has succeeded for another": {certificate: soon,
			rotations: rotations(rotation(operationv1.PhaseSucceeded, -300*day, now.Add(-240*day))), due: true},
		"one has succeeded for this one": {certificate: soon, rotations: rotations(rotation(operationv1.PhaseSucceeded, -2*day, soon.End))},
		"a user has canceled one": {certificate: soon,
			rotations: rotations(rotation(operationv1.PhaseCanceled, -3*time.Hour, time.Time{})), again: 21 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			first, due, again := Due(now, []Certificate{tc.certificate}, tc.rotations, 0)
			if due != tc.due || again != tc.again || due && first != tc.certificate {
				t.Errorf("due: %t, again after %s, for %+v", due, again, first)
			}
		})
	}
	// How long an operation took counts from its end.
	op := rotation(operationv1.PhaseFailed, -25*time.Hour, time.Time{})
	at := metav1.NewTime(now.Add(-time.Hour))
	op.Status.TerminatedAt = &at
	if _, due, again := Due(now, []Certificate{soon}, rotations(op), 0); due || again != 23*time.Hour {
		t.Errorf("due: %t, again after %s", due, again)
	}
	// A certificate that a rotation has left as it was does not hide another one.
	later := with(func(c *Certificate) { c.Machine, c.End = "b", soon.End.Add(day) })
	succeeded := rotation(operationv1.PhaseSucceeded, -8*day, soon.End)
	if first, due, _ := Due(now, []Certificate{soon, later}, rotations(succeeded), 0); !due || first != later {
		t.Errorf("due: %t, for %+v", due, first)
	}
	// One that was left out, since its machine was lost, gets another attempt.
	succeeded.Status.Machines = []operationv1.MachineStatus{{Name: "a", Phase: operationv1.PhaseCanceled},
		{Name: "b", Phase: operationv1.PhaseSucceeded}}
	if first, due, _ := Due(now, []Certificate{soon, later}, rotations(succeeded), 0); !due || first != soon {
		t.Errorf("due: %t, for %+v", due, first)
	}
	c, _, _ := Condition(now, []Certificate{soon}, rotations(succeeded))
	if !strings.HasSuffix(c.Message, "; a CertificateRotation replaces it") {
		t.Errorf("got %q", c.Message)
	}
	recent := rotation(operationv1.PhaseSucceeded, -2*day, now.Add(-day))
	if _, due, again := Due(now, []Certificate{soon}, rotations(recent), 0); due || again != 5*day {
		t.Errorf("due: %t, again after %s", due, again)
	}
	// After some that have failed for the same certificate, the next one is later.
	failed := []*operationv1.CertificateRotation{rotation(operationv1.PhaseFailed, -5*day, soon.End),
		rotation(operationv1.PhaseFailed, -4*day, soon.End),
		rotation(operationv1.PhaseFailed, -2*day, soon.End), rotation(operationv1.PhaseFailed, -90*day, now.Add(-day))}
	if _, due, again := Due(now, []Certificate{soon}, failed, 0); due || again != day {
		t.Errorf("due: %t, again after %s", due, again)
	}
	// Where the status was lost, the annotation tells that it has ended.
	op = rotation("", -time.Hour, time.Time{})
	op.Annotations = map[string]string{operationv1.EndedAnnotation: "Failed"}
	if _, due, again := Due(now, []Certificate{soon}, rotations(op), 0); due || again != 23*time.Hour {
		t.Errorf("due: %t, again after %s", due, again)
	}
}

// TestDelay: clusters whose certificates end at the same time are spread over a day, each always at the same time.
func TestDelay(t *testing.T) {
	hours := map[time.Duration]int{}
	for i := range 1000 {
		cluster := types.UID(fmt.Sprintf("5f2b1c3a-0000-4000-8000-%012d", i))
		delay := Delay(cluster)
		hours[delay.Truncate(time.Hour)]++
		certificate := Certificate{End: now.Add(WarnBefore), Rotated: true, Seen: now}
		if _, due, again := Due(now, []Certificate{certificate}, nil, delay); due != (delay == 0) || again != delay {
			t.Fatalf("%s: due: %t, again after %s", cluster, due, again)
		}
		later := now.Add(delay)
		certificate.Seen = later
		if _, due, _ := Due(later, []Certificate{certificate}, nil, Delay(cluster)); !due {
			t.Fatalf("%s is not due after %s", cluster, delay)
		}
	}
	for hour, clusters := range hours {
		if hour < 0 || hour >= 24*time.Hour || clusters > 100 {
			t.Errorf("%d clusters are due after %s", clusters, hour)
		}
	}
}
