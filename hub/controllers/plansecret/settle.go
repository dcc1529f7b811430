package plansecret

import (
	"bytes"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/plans"
)

// Settle notes in a plan Secret, in place, what follows from the report in it if the plan is applied: the copy of the applied plan, when
// all probes were healthy for the first time, and that nothing is retried any more. The gateway writes that together with the report, which
// saves a write for each plan of each machine.
func Settle(secret *corev1.Secret, now time.Time) {
	if report, err := rollout.ReadReport(secret.Data); err == nil && report.Progress == rollout.ProgressApplied {
		settle(secret, report, now)
	}
}

// settle expects the report of an applied plan.
func settle(secret *corev1.Secret, report rollout.Report, now time.Time) {
	if !bytes.Equal(secret.Data[plans.KeyAppliedPlan], secret.Data[plans.KeyPlan]) {
		secret.Data[plans.KeyAppliedPlan] = secret.Data[plans.KeyPlan]
	}
	if len(report.NotHealthy()) == 0 && secret.Annotations[rkev1.PlanProbesPassedAnnotation] == "" {
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, rkev1.PlanProbesPassedAnnotation, now.UTC().Format(time.RFC3339))
	}
	delete(secret.Annotations, rkev1.PlanRetryAnnotation)
}
