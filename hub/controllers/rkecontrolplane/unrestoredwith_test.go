package rkecontrolplane

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operationv1 "github.com/drover-dev/drover/hub/api/operation/v1alpha1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// TestUnrestoredWith: the annotation is set by a request that brings the configuration of a snapshot, and emptied when that restore or a
// later one has its data, or the request is removed, and by nothing else.
func TestUnrestoredWith(t *testing.T) {
	restore := func(generation string, phase operationv1.Phase, step string) *operationv1.ETCDSnapshotRestore {
		op := &operationv1.ETCDSnapshotRestore{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{restoreLabel: generation}}}
		if generation == "" {
			op.Labels = nil
		}
		op.Status.Phase, op.Status.Step = phase, step
		return op
	}
	waits, checks := restore("2", operationv1.PhasePending, ""), restore("2", operationv1.PhaseInProgress, operationv1.StepPreflight)
	stops, restores := restore("2", operationv1.PhaseInProgress, operationv1.StepShutdown),
		restore("2", operationv1.PhaseInProgress, operationv1.StepRestore)
	failed, succeeded := restore("2", operationv1.PhaseFailed, ""), restore("2", operationv1.PhaseSucceeded, "")
	unchanged := restore("2", operationv1.PhaseFailed, "")
	unchanged.Status.Unchanged = true
	lost := restore("2", "", "")
	lost.Annotations = map[string]string{operationv1.EndedAnnotation: "Failed"}
	user := restore("", operationv1.PhaseInProgress, operationv1.StepPostRestorePodCleanup)
	byUser := restore("", operationv1.PhaseSucceeded, "")
	const held, none, unknown = "snap/2", "", "unknown"
	for name, tc := range map[string]struct {
		asked    *rkev1.ETCDSnapshotRestore
		observed int
		before   string
		all      []operationv1.Operation
		want     string
	}{
		"nothing is asked for":                     {nil, 0, unknown, nil, none},
		"the data is asked for":                    {asked(2, "none"), 0, unknown, nil, none},
		"the configuration is asked for":           {asked(2, "all"), 0, unknown, nil, held},
		"it is asked for after another one":        {asked(2, "kubernetesVersion"), 1, none, nil, held},
		"another configuration is asked for":       {asked(3, "all"), 2, held, []operationv1.Operation{unchanged}, "snap/3"},
		"asked for without a name":                 {&rkev1.ETCDSnapshotRestore{Generation: 2, RestoreRKEConfig: "all"}, 0, unknown, nil, none},
		"removed":                                  {nil, 2, held, []operationv1.Operation{unchanged}, none},
		"removed while it waits":                   {nil, 2, held, []operationv1.Operation{waits}, none},
		"it waits":                                 {asked(2, "all"), 2, held, []operationv1.Operation{waits}, held},
		"it waits since an upgrade of the hub":     {asked(2, "all"), 2, unknown, []operationv1.Operation{waits}, held},
		"it begins again in another hub":           {asked(2, "all"), 0, none, []operationv1.Operation{waits}, held},
		"it checks":                                {asked(2, "all"), 2, held, []operationv1.Operation{checks}, held},
		"it stops machines":                        {asked(2, "all"), 2, held, []operationv1.Operation{stops}, held},
		"it restores":                              {asked(2, "all"), 2, held, []operationv1.Operation{restores}, none},
		"it has changed nothing":                   {asked(2, "all"), 2, held, []operationv1.Operation{unchanged}, held},
		"it has changed nothing by an earlier hub": {asked(2, "all"), 2, unknown, []operationv1.Operation{unchanged}, held},
		"it was restored by another one":           {asked(2, "all"), 2, none, []operationv1.Operation{unchanged}, none},
		"it has stopped some machines":             {asked(2, "all"), 2, held, []operationv1.Operation{failed}, held},
		"it has ended, and its status is lost":     {asked(2, "all"), 0, held, []operationv1.Operation{lost}, held},
		"it is deleted":                            {asked(2, "all"), 2, held, nil, held},
		"it has succeeded":                         {asked(2, "all"), 2, held, []operationv1.Operation{succeeded}, none},
		"it has succeeded by an earlier hub":       {asked(2, "all"), 2, unknown, []operationv1.Operation{succeeded}, none},
		"it has succeeded, and is deleted":         {asked(2, "all"), 2, none, nil, none},
		"it is deleted, of an earlier hub":         {asked(2, "all"), 2, unknown, nil, none},
		"its generation is used again":             {asked(2, "all"), 3, none, []operationv1.Operation{succeeded}, held},
		"the data is asked for later":              {asked(3, "none"), 2, held, []operationv1.Operation{unchanged}, held},
		"the data is restored later": {asked(3, "none"), 3, held,
			[]operationv1.Operation{unchanged, restore("3", operationv1.PhaseInProgress, operationv1.StepRestore)}, none},
		"a user restores later":              {asked(2, "all"), 2, held, []operationv1.Operation{unchanged, user}, none},
		"a user has restored later":          {asked(2, "all"), 2, held, []operationv1.Operation{unchanged, byUser}, none},
		"a user has restored before":         {asked(2, "all"), 2, held, []operationv1.Operation{byUser, unchanged}, held},
		"a user restores before it begins":   {asked(2, "all"), 2, held, []operationv1.Operation{user, waits}, held},
		"a user restores after its deletion": {asked(2, "all"), 2, held, []operationv1.Operation{byUser, user}, none},
	} {
		plane := &rkev1.RKEControlPlane{}
		plane.Spec.ETCDSnapshotRestore = tc.asked
		if tc.observed > 0 {
			plane.Status.ETCDSnapshotRestore = &rkev1.ETCDSnapshotRestore{Generation: tc.observed}
		}
		if tc.before != unknown {
			plane.Annotations = map[string]string{rkev1.UnrestoredConfigurationAnnotation: tc.before}
		}
		if got := unrestoredWith(plane, tc.all); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
