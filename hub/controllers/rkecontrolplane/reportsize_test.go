package rkecontrolplane

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/plans"
)

// TestLargeReports: of a report that is small in the plan Secret and large in memory, little is kept, and what controllers read.
func TestLargeReports(t *testing.T) {
	large := make([]byte, 4<<20)
	status := plans.Status{
		AppliedChecksum: "sum", AppliedOutput: map[string][]byte{"install": large, "short": []byte("saved")},
		FailedOutput:   map[string][]byte{"install": append(append([]byte{}, large...), "no space left"...)},
		PeriodicOutput: map[string]plans.PeriodicOutput{"long": {Stdout: large}, "short": {Stdout: []byte("address")}},
		ProbeStatuses:  map[string]plans.ProbeStatus{},
	}
	for i := range 20_000 {
		status.ProbeStatuses[fmt.Sprintf("probe-%d", i)] = plans.ProbeStatus{}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{UID: "s", ResourceVersion: "1"}, Data: map[string][]byte{}}
	if err := status.WriteTo(secret.Data); err != nil {
		t.Fatal(err)
	}
	plansOf := &clusterPlans{}
	plansOf.load()
	kept := plansOf.of(secret)
	if kept.reportErr != nil {
		t.Fatal(kept.reportErr)
	}
	s := kept.report.Status
	if len(s.AppliedOutput) != 1 || string(s.AppliedOutput["short"]) != "saved" || s.AppliedChecksum != "sum" {
		t.Errorf("%d outputs are kept", len(s.AppliedOutput))
	}
	if len(s.PeriodicOutput) != 1 || string(s.PeriodicOutput["short"].Stdout) != "address" {
		t.Errorf("%d periodic outputs are kept", len(s.PeriodicOutput))
	}
	if failed := s.FailedOutput["install"]; len(failed) != maxFailed || kept.report.FailedOutput() == "" {
		t.Errorf("%d bytes of the output that tells of a failure are kept", len(failed))
	}
	if len(s.ProbeStatuses)*perValue > maxKept {
		t.Errorf("%d probes are kept", len(s.ProbeStatuses))
	}
}
