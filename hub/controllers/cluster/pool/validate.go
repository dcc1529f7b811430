package pool

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
)

// taintEffects are those of Kubernetes.
var taintEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

// Validate returns the problems of a pool that the API server could not detect. Each names the field and what to write instead.
func Validate(cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool) []string {
	faults := validateRef(cluster, p)
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		if reserved(key) {
			faults = append(faults, fmt.Sprintf("%s: %s is reserved for the hub (as are all labels that begin with %s); remove it",
				Field(p.Name, "labels"), key, strings.Join(rkev1.ReservedPrefixes, ", ")))
		}
	}
	for name, labels := range map[string]map[string]string{"labels": p.Labels, "machineDeploymentLabels": p.MachineDeploymentLabels} {
		for _, err := range metav1validation.ValidateLabels(labels, field.NewPath(Field(p.Name, name))) {
			faults = append(faults, err.Error())
		}
	}
	for i, taint := range p.Taints {
		faults = append(faults, validateTaint(Field(p.Name, fmt.Sprintf("taints[%d]", i)), taint)...)
	}
	faults = append(faults, validateRollingUpdate(p)...)
	slices.Sort(faults)
	return faults
}

// ValidateLimits returns the problem of limits that Cluster API accepts, and with which its health check does nothing but fail; empty for
// none; or of a nodeStartupTimeout that it does not accept. They concern the health check only.
func ValidateLimits(p *provisioningv1.RKEMachinePool) string {
	if startup := p.NodeStartupTimeout; startup != nil && startup.Duration.Duration > 0 && startup.Duration.Duration < minNodeStartupTimeout {
		return fmt.Sprintf("%s is %s: it must be at least %s, or 0s for never", Field(p.Name, "nodeStartupTimeout"), startup.Duration.Duration,
			minNodeStartupTimeout)
	}
	var least, most int32
	if limits := ptr.Deref(p.UnhealthyRange, ""); limits != "" {
		if _, err := fmt.Sscanf(limits, "[%d-%d]", &least, &most); err != nil || least > most {
			return fmt.Sprintf("%s is %q: it must be two numbers in brackets, the lower one first, such as [1-3]",
				Field(p.Name, "unhealthyRange"), limits)
		}
	}
	return ""
}

// Warnings names the fields of a pool that are set and have no effect because of others.
func Warnings(p *provisioningv1.RKEMachinePool) (warnings []string) {
	warn := func(field, why string) { warnings = append(warnings, Field(p.Name, field)+" has no effect "+why) }
	isSet := func(d *provisioningv1.Duration) bool { return d != nil && d.Duration.Duration > 0 }
	limited, ranged := ptr.Deref(p.MaxUnhealthy, "") != "", ptr.Deref(p.UnhealthyRange, "") != ""
	if !isSet(p.UnhealthyNodeTimeout) {
		const why = "without unhealthyNodeTimeout: machines of the pool are not replaced"
		if limited {
			warn("maxUnhealthy", why)
		}
		if ranged {
			warn("unhealthyRange", why)
		}
		if isSet(p.NodeStartupTimeout) {
			warn("nodeStartupTimeout", why)
		}
	} else if limited && ranged {
		warn("maxUnhealthy", "beside unhealthyRange")
	}
	if isSet(p.DrainBeforeDeleteTimeout) && !p.DrainBeforeDelete {
		warn("drainBeforeDeleteTimeout", "without drainBeforeDelete")
	}
	return warnings
}

// ValidateRoles returns the problem of a pool whose roles are others than those of its machines; empty for none. Cluster API would give its
// Machines other labels, and keep them: one with etcd would count as one without, and one without would get the services of a server beside
// those of a worker.
func ValidateRoles(p *provisioningv1.RKEMachinePool, md *clusterv1.MachineDeployment) string {
	for _, role := range []struct {
		field, label string
		has          bool
	}{{"etcdRole", rkev1.EtcdRoleLabel, p.EtcdRole}, {"controlPlaneRole", rkev1.ControlPlaneRoleLabel, p.ControlPlaneRole}} {
		if had := md.Spec.Template.Labels[role.label] == "true"; had != role.has {
			return fmt.Sprintf("%s cannot be changed: set it to %t; to have machines with other roles, add a pool, and remove this one when they "+
				"have joined", Field(p.Name, role.field), had)
		}
	}
	return ""
}

// validateRef validates the reference; whether the object exists is checked elsewhere.
func validateRef(cluster *provisioningv1.Cluster, p *provisioningv1.RKEMachinePool) []string {
	ref := p.MachineConfigRef
	if ref.Namespace != "" && ref.Namespace != cluster.Namespace {
		return []string{fmt.Sprintf("%s is %q: it must be the Cluster's own, %q, or be left out", Field(p.Name, "machineConfigRef.namespace"),
			ref.Namespace, cluster.Namespace)}
	}
	kind := p.MachineConfigKind()
	if kind.Group == provisioningv1.MachineConfigGroup {
		if schema.DriverOf(kind.GroupKind()) == "" {
			return []string{fmt.Sprintf("%s is %q: name the kind of the machine configuration of a node driver, such as DigitaloceanConfig, or set "+
				"apiVersion to that of another provider", Field(p.Name, "machineConfigRef.kind"), kind.Kind)}
		}
		return validateDriverUserdata(p)
	}
	if kind.Group == rkev1.GroupVersion.Group {
		return []string{fmt.Sprintf("%s names the kind %s, whose machines register themselves; remove the pool and run the command of the "+
			"ClusterRegistrationToken on them",
			Field(p.Name, "machineConfigRef"), kind.Kind)}
	}
	if !strings.HasSuffix(kind.Kind, "Template") {
		return []string{fmt.Sprintf("%s is %q: name the kind of a machine template, such as %sTemplate",
			Field(p.Name, "machineConfigRef.kind"), kind.Kind, kind.Kind)}
	}
	return nil
}

// validateDriverUserdata refuses what nothing would give to the machines of a node driver: they take user data in their configuration.
func validateDriverUserdata(p *provisioningv1.RKEMachinePool) []string {
	if p.Userdata == nil || p.Userdata.DefaultScript() {
		return nil
	}
	return []string{fmt.Sprintf("%s is for machines of Cluster API providers: write the user data into the field of the %s that the driver "+
		"has for it, such as userdata, customData or cloudConfig, and remove it here", Field(p.Name, "userdata"), p.MachineConfigKind().Kind)}
}

// validateRollingUpdate refuses negative limits, which Cluster API accepts, and with which it creates fewer machines than there should be.
// It refuses those that Cluster API does not accept as well, since each write of the MachineDeployment would fail. The API server has
// refused limits that are both 0, but not one of 0 beside another that is not set.
func validateRollingUpdate(p *provisioningv1.RKEMachinePool) (faults []string) {
	if p.RollingUpdate == nil {
		return nil
	}
	// The defaults are those of Cluster API.
	none, surge, unavailable := intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromInt32(0)
	for _, limit := range []struct {
		field       string
		given, into *intstr.IntOrString
	}{{"maxSurge", p.RollingUpdate.MaxSurge, &surge}, {"maxUnavailable", p.RollingUpdate.MaxUnavailable, &unavailable}} {
		if limit.given == nil {
			continue
		}
		*limit.into = *limit.given
		if n, err := intstr.GetScaledValueFromIntOrPercent(limit.given, 100, true); err != nil || n < 0 {
			faults = append(faults, fmt.Sprintf("%s is %q: it must be a number such as 1, or a percentage such as 25%%",
				Field(p.Name, "rollingUpdate."+limit.field), limit.given.String()))
		}
	}
	if surge == none && unavailable == none {
		faults = append(faults, fmt.Sprintf("%s is 0, and maxUnavailable is 0 if it is not set, so that no machine can be replaced: set "+
			"maxUnavailable to at least 1, or maxSurge", Field(p.Name, "rollingUpdate.maxSurge")))
	}
	return faults
}

func validateTaint(path string, taint corev1.Taint) []string {
	var faults []string
	for _, message := range validation.IsQualifiedName(taint.Key) {
		faults = append(faults, fmt.Sprintf("%s.key is %q: %s", path, taint.Key, message))
	}
	for _, message := range validation.IsValidLabelValue(taint.Value) {
		faults = append(faults, fmt.Sprintf("%s.value is %q: %s", path, taint.Value, message))
	}
	if !slices.Contains(taintEffects, taint.Effect) {
		faults = append(faults, fmt.Sprintf("%s.effect is %q: it must be one of %q", path, taint.Effect, taintEffects))
	}
	return faults
}
