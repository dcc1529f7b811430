package rkecontrolplane

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/render"
)

// hubAnnotations begins the keys of annotations that the hub writes to plan Secrets.
const hubAnnotations = "rke.cattle.io/"

// unansweredHooks warns of hooks for drains that nobody can answer, for which a drain would wait without an end: no annotation can have
// such a key, or it is one that the hub writes. A drain does not wait for a hook without a key.
func (s *scope) unansweredHooks() (out render.Problems) {
	strategy := s.controlPlane.Spec.UpgradeStrategy
	for _, list := range []struct {
		field string
		hooks []rkev1.DrainHook
	}{
		{"controlPlaneDrainOptions.preDrainHooks", strategy.ControlPlaneDrainOptions.PreDrainHooks},
		{"controlPlaneDrainOptions.postDrainHooks", strategy.ControlPlaneDrainOptions.PostDrainHooks},
		{"workerDrainOptions.preDrainHooks", strategy.WorkerDrainOptions.PreDrainHooks},
		{"workerDrainOptions.postDrainHooks", strategy.WorkerDrainOptions.PostDrainHooks},
	} {
		for i, hook := range list.hooks {
			field := fmt.Sprintf("spec.rkeConfig.upgradeStrategy.%s[%d].annotation", list.field, i)
			faults := validation.IsQualifiedName(strings.ToLower(hook.Annotation))
			switch {
			case hook.Annotation == "":
				out = append(out, render.Problem{Field: field, Message: "is empty and was left out: name the annotation that the hook sets"})
			case len(faults) > 0:
				out = append(out, render.Problem{Field: field, Kept: true, Message: fmt.Sprintf("%q can be no annotation, so that drains wait for "+
					"it without an end: %s", hook.Annotation, faults[0])})
			case strings.HasPrefix(hook.Annotation, hubAnnotations):
				out = append(out, render.Problem{Field: field, Kept: true, Message: fmt.Sprintf("%q is for the hub: use a key that does not begin "+
					"with %s", hook.Annotation, hubAnnotations)})
			}
		}
	}
	return out
}
