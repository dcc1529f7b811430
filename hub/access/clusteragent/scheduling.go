package clusteragent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// scheduling are the priority class and the disruption budget that the cluster's owner asks for.
func scheduling(in Input) []runtime.Object {
	var objects []runtime.Object
	if class := in.scheduling().PriorityClass; class != nil {
		objects = append(objects, &schedulingv1.PriorityClass{
			TypeMeta:         metav1.TypeMeta{APIVersion: schedulingv1.SchemeGroupVersion.String(), Kind: "PriorityClass"},
			ObjectMeta:       meta(in.priorityClassName()),
			Value:            int32(class.Value),
			PreemptionPolicy: class.PreemptionPolicy,
			Description:      "Priority of the agent that connects this cluster to its hub",
		})
	}
	if budget := in.scheduling().PodDisruptionBudget; budget != nil && (budget.MinAvailable != nil || budget.MaxUnavailable != nil) &&
		BudgetFault(*budget) == "" {
		objects = append(objects, &policyv1.PodDisruptionBudget{
			TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"},
			ObjectMeta: inNamespace(Deployment + "-pod-disruption-budget"),
			Spec: policyv1.PodDisruptionBudgetSpec{
				MinAvailable:   budgetValue(budget.MinAvailable),
				MaxUnavailable: budgetValue(budget.MaxUnavailable),
				Selector:       &metav1.LabelSelector{MatchLabels: labels()},
			},
		})
	}
	return objects
}

// priorityClassName is another one for another priority: what a PriorityClass says cannot be changed.
func (in Input) priorityClassName() string {
	class := in.scheduling().PriorityClass
	if class == nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s", class.Value, ptr.Deref(class.PreemptionPolicy, "")))
	return Deployment + "-priority-class-" + hex.EncodeToString(sum[:4])
}

// tolerations let the agent run on the control plane's Nodes whatever their taints, and while a Node still waits for its cloud provider:
// without the agent nobody could look after such a cluster. The owner's come last.
func (in Input) tolerations() []corev1.Toleration {
	exists := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	out := []corev1.Toleration{
		exists("node-role.kubernetes.io/control-plane", corev1.TaintEffectNoSchedule),
		exists("node-role.kubernetes.io/controlplane", corev1.TaintEffectNoSchedule),
		exists("node-role.kubernetes.io/master", corev1.TaintEffectNoSchedule),
		exists("node-role.kubernetes.io/etcd", corev1.TaintEffectNoExecute),
		exists("node.cloudprovider.kubernetes.io/uninitialized", corev1.TaintEffectNoSchedule),
	}
	for _, taint := range in.ControlPlaneTaints {
		known := slices.ContainsFunc(out, func(t corev1.Toleration) bool {
			return t.Key == taint.Key && t.Effect == taint.Effect && (t.Operator == corev1.TolerationOpExists || t.Value == taint.Value)
		})
		if !known {
			out = append(out, corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpEqual, Value: taint.Value, Effect: taint.Effect})
		}
	}
	for _, own := range in.customization().AppendTolerations {
		if TolerationFault(own) == "" {
			out = append(out, own)
		}
	}
	return out
}

// affinity prefers the control plane, where the API is near, and keeps two agents apart.
func (in Input) affinity() *corev1.Affinity {
	if own := in.customization().OverrideAffinity; own != nil {
		return own
	}
	return &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
			Weight: 100,
			Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.NodeSelectorOpExists},
			}},
		}}},
		PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight:          100,
			PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: labels()}},
		}}},
	}
}
