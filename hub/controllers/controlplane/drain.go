package controlplane

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/rollout"
)

// drainOptions writes the options down as the annotation rke.cattle.io/drain-options holds them, which is what hooks are answered with.
func drainOptions(o rkev1.DrainOptions) rollout.DrainOptions {
	named := func(h rkev1.DrainHook) bool { return h.Annotation != "" }
	hooksOnly := o
	hooksOnly.Enabled = false
	return rollout.DrainOptions{
		Enabled: o.Enabled, Hooks: slices.ContainsFunc(o.PreDrainHooks, named) || slices.ContainsFunc(o.PostDrainHooks, named),
		Options: encodeDrain(o), HooksOnly: encodeDrain(hooksOnly),
	}
}

// encodeDrain gives the same bytes for the same options: the fields are written in the order of the type.
func encodeDrain(o rkev1.DrainOptions) string {
	raw, err := json.Marshal(o)
	if err != nil { // a struct of texts, numbers and booleans
		return ""
	}
	return string(raw)
}

// askForDrain asks the drain controller for what was decided.
func askForDrain(d rollout.Decision, secret *corev1.Secret) {
	switch {
	case d.Drain != "":
		setOrDelete(&secret.Annotations, rkev1.DrainOptionsAnnotation, d.Drain)
		setOrDelete(&secret.Annotations, rkev1.UncordonAnnotation, "")
	case d.Uncordon:
		setOrDelete(&secret.Annotations, rkev1.UncordonAnnotation, secret.Annotations[rkev1.DrainOptionsAnnotation])
	}
}
