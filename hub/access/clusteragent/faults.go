package clusteragent

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

var taintEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

// TolerationFault says why the cluster's API server would refuse a toleration of Pods; empty if it would not. It is to be put behind the
// field that holds the toleration. A manifest leaves such tolerations out.
func TolerationFault(t corev1.Toleration) string {
	switch {
	case t.Key != "" && len(validation.IsQualifiedName(t.Key)) > 0:
		return fmt.Sprintf(".key is %q: %s", t.Key, validation.IsQualifiedName(t.Key)[0])
	case !slices.Contains([]corev1.TolerationOperator{"", corev1.TolerationOpEqual, corev1.TolerationOpExists}, t.Operator):
		return fmt.Sprintf(".operator is %q: it must be Equal or Exists", t.Operator)
	case t.Key == "" && t.Operator != corev1.TolerationOpExists:
		return ": without a key, the operator must be Exists"
	case t.Operator == corev1.TolerationOpExists && t.Value != "":
		return fmt.Sprintf(".value is %q: it must be left out with the operator Exists", t.Value)
	case t.Effect != "" && !slices.Contains(taintEffects, t.Effect):
		return fmt.Sprintf(".effect is %q: it must be one of %q, or be left out for all", t.Effect, taintEffects)
	case t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute:
		return ".tolerationSeconds is set: it goes with the effect NoExecute only"
	}
	return ""
}

// ResourcesFault says why the cluster's API server would refuse the resources of a container; empty if it would not. A manifest has its own
// instead.
func ResourcesFault(r corev1.ResourceRequirements) string {
	if len(r.Claims) > 0 {
		return ".claims is set: Pods of the agent have no resource claims"
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		if limit, limited := r.Limits[name]; limited && request.Cmp(limit) > 0 {
			return fmt.Sprintf(".requests.%s is %s: it must not be greater than the limit, %s", name, request.String(), limit.String())
		}
	}
	return ""
}

// budgetValue is a value of a disruption budget as Kubernetes takes it: Rancher has numbers as texts.
func budgetValue(given *intstr.IntOrString) *intstr.IntOrString {
	if given == nil {
		return nil
	}
	return new(intstr.Parse(given.String()))
}

// BudgetFault says why the cluster's API server would refuse a disruption budget; empty if it would not. A manifest leaves it out.
func BudgetFault(b rkev1.PodDisruptionBudgetSpec) string {
	for _, field := range []struct {
		name  string
		value *intstr.IntOrString
	}{{"minAvailable", b.MinAvailable}, {"maxUnavailable", b.MaxUnavailable}} {
		switch value := budgetValue(field.value); {
		case value == nil:
		case value.Type == intstr.String && len(validation.IsValidPercent(value.StrVal)) > 0, value.Type == intstr.Int && value.IntVal < 0:
			return fmt.Sprintf(".%s is %q: it must be a number such as 1 or a percentage such as 50%%", field.name, value.String())
		}
	}
	return ""
}
