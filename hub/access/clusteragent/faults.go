package clusteragent

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
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
