package plansecret

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/plansecrets"
	"github.com/drover-dev/drover/plans"
)

func TestCondition(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	k3s := plans.Plan{Files: []plans.File{{Path: "/etc/rancher/agent/registries.yaml"},
		{Path: "/etc/rancher/k3s/config.yaml.d/50-rancher.yaml"}}}
	worker := plans.Plan{
		Files:        []plans.File{{Path: "/etc/rancher/rke2/config.yaml.d/50-rancher.yaml"}},
		Instructions: []plans.Instruction{{CommonInstruction: plans.CommonInstruction{Env: []string{"INSTALL_RKE2_EXEC=agent"}}}},
	}
	failed := plans.Status{State: plans.StateFailed}
	tests := map[string]struct {
		scope scope
		want  metav1.Condition
	}{
		"nothing delivered": {scope{}, metav1.Condition{Status: "Unknown", Reason: "WaitingForPlan",
			Message: "Waiting for the first plan to be delivered"}},
		"pending": {scope{report: rollout.Report{Progress: rollout.ProgressPending}},
			metav1.Condition{Status: "Unknown", Reason: "Pending", Message: "Waiting for the agent to start applying the plan"}},
		"applying again": {
			scope{report: rollout.Report{Progress: rollout.ProgressApplying}, retry: retry{Attempts: 2}},
			metav1.Condition{Status: "Unknown", Reason: "Applying", Message: "Waiting for the agent to apply the plan (attempt 3 of 10)"},
		},
		"applied": {scope{report: rollout.Report{Progress: rollout.ProgressApplied}}, metav1.Condition{Status: "True", Reason: "Applied"}},
		"paused": {
			scope{report: rollout.Report{Progress: rollout.ProgressPaused}, secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "plan"}}},
			metav1.Condition{Status: "Unknown", Reason: "Paused",
				Message: "The plan is paused by annotation plan.cattle.io/paused of Secret plan: remove the annotation to continue"},
		},
		"applied and unhealthy": {
			scope{report: rollout.Report{Progress: rollout.ProgressApplied, Unhealthy: []string{"etcd", "kubelet"}}},
			metav1.Condition{Status: "True", Reason: "Applied"},
		},
		"failed": {
			scope{report: rollout.Report{Progress: rollout.ProgressFailed, Status: failed, Delivered: k3s}, retry: retry{Attempts: 2, FailedAt: at}},
			metav1.Condition{Status: "False", Reason: "Failed", Message: "Attempt 2 of 10 to apply the plan failed; retrying at 03:04:35 UTC; " +
				"for details run on the machine: journalctl -u rancher-system-agent.service -u k3s.service"},
		},
		"failed for good": {
			scope{
				report: rollout.Report{Progress: rollout.ProgressFailed, Delivered: worker, Status: plans.Status{
					State: plans.StateFailed, FailedOutput: map[string][]byte{"install": []byte("one\n\ttwo\x1b[0m\xff\n")},
				}},
				retry:  retry{Attempts: 10, FailedAt: at},
				secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "plan"}},
			},
			metav1.Condition{Status: "False", Reason: "Failed",
				Message: "Attempt 10 of 10 to apply the plan failed; to retry, change the cluster's configuration " +
					"or remove the annotation rke.cattle.io/plan-retry from Secret plan; output of instruction install: one two[0m; " +
					"for details run on the machine: journalctl -u rancher-system-agent.service -u rke2-agent.service"},
		},
		"restoring a snapshot has failed": {
			scope{report: rollout.Report{Progress: rollout.ProgressFailed, Status: failed, Delivered: plans.Plan{
				Instructions: []plans.Instruction{{CommonInstruction: plans.CommonInstruction{Name: "etcd-snapshot-restore",
					Env: []string{"DROVER_OPERATION=uid/Restore"}}}}}}},
			metav1.Condition{Status: "False", Reason: "Failed", Message: "Restoring the snapshot failed, and is not retried; " +
				"for details run on the machine: journalctl -u rancher-system-agent.service"},
		},
		"an older agent has failed": {
			scope{report: rollout.Report{Progress: rollout.ProgressFailed, Status: plans.Status{FailureCount: 3}}},
			metav1.Condition{Status: "False", Reason: "Failed", Message: "Applying the plan failed 3 times; the agent is retrying; " +
				"for details run on the machine: journalctl -u rancher-system-agent.service"},
		},
		"failed while paused": {
			scope{paused: true, report: rollout.Report{Progress: rollout.ProgressFailed, Status: failed}},
			metav1.Condition{Status: "False", Reason: "Failed",
				Message: "Applying the plan failed; waiting for the Cluster to be unpaused to retry; " +
					"for details run on the machine: journalctl -u rancher-system-agent.service"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.want.Type = rkev1.PlanAppliedCondition
			if diff := cmp.Diff(tc.want, condition(&tc.scope)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWorthSaying: a new machine has no condition until a plan was delivered.
func TestWorthSaying(t *testing.T) {
	waiting := condition(&scope{})
	applied := condition(&scope{report: rollout.Report{Progress: rollout.ProgressApplied}})
	fresh, known := &clusterv1.Machine{}, &clusterv1.Machine{}
	known.Status.Conditions = []metav1.Condition{applied}
	if worthSaying(waiting, fresh) {
		t.Error("a new machine says that it waits for a plan")
	}
	if !worthSaying(waiting, known) {
		t.Error("a machine whose plan has gone still says that it was applied")
	}
	if !worthSaying(applied, fresh) {
		t.Error("a plan that was applied is not shown")
	}
}

// TestUntilProgressShown: an agent has a moment to apply a plan before the conditions say that it has not.
func TestUntilProgressShown(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pending := rollout.Report{Progress: rollout.ProgressPending}
	for name, tc := range map[string]struct {
		scope     scope
		delivered string
		want      time.Duration
	}{
		"delivered now":          {scope{report: pending}, "2026-01-02T03:04:05Z", plansecrets.ProgressShownAfter(0)},
		"delivered a moment ago": {scope{report: pending}, "2026-01-02T03:04:04Z", plansecrets.ProgressShownAfter(0) - time.Second},
		"had its time":           {scope{report: pending}, "2026-01-02T03:04:02Z", 0},
		"of another clock":       {scope{report: pending}, "2026-01-02T03:04:06Z", 0},
		"nobody says when":       {scope{report: pending}, "", 0},
		"retried":                {scope{report: pending, retry: retry{Attempts: 1}}, "2026-01-02T03:04:05Z", 0},
		"being applied": {scope{report: rollout.Report{Progress: rollout.ProgressApplying}}, "2026-01-02T03:04:05Z",
			plansecrets.ProgressShownAfter(0)},
		"applied": {scope{report: rollout.Report{Progress: rollout.ProgressApplied}}, "2026-01-02T03:04:05Z", 0},
		"failed":  {scope{report: rollout.Report{Progress: rollout.ProgressFailed}}, "2026-01-02T03:04:05Z", 0},
		"paused":  {scope{report: pending, paused: true}, "2026-01-02T03:04:05Z", 0},
	} {
		tc.scope.secret = &corev1.Secret{}
		tc.scope.secret.Annotations = map[string]string{rkev1.PlanLastUpdatedAnnotation: tc.delivered}
		if got := tc.scope.untilProgressShown(0, now); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
