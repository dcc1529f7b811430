package nodedriver

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
)

var ownedConditions = []string{rkev1.ReadyCondition, managementv3.NodeDriverDownloaded, managementv3.NodeDriverInstalled}

// setStatus writes what the phases found. What was found of an active driver stays while it is inactive.
func setStatus(s *scope) {
	s.driver.Status.DriverName, s.driver.Status.ObservedGeneration = s.name, s.driver.Generation
	if s.downloaded || s.download != nil {
		conditions.Set(s.driver, s.download.Condition(managementv3.NodeDriverDownloaded, "Downloaded"))
	}
	if s.installed || s.install != nil {
		conditions.Set(s.driver, s.install.Condition(managementv3.NodeDriverInstalled, "Installed"))
	}
	conditions.Set(s.driver, ready(s))
}

func ready(s *scope) metav1.Condition {
	for _, c := range []*cause.Cause{s.removal, s.download, s.install} {
		if c != nil {
			return c.Condition(rkev1.ReadyCondition, "")
		}
	}
	if !s.driver.DeletionTimestamp.IsZero() {
		return metav1.Condition{Type: rkev1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "Deleting",
			Message: "NodeDriver is being deleted"}
	}
	if !s.driver.Spec.Active {
		return metav1.Condition{Type: rkev1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "Inactive",
			Message: "The driver is not active; set spec.active to use it"}
	}
	if s.installed {
		return metav1.Condition{Type: rkev1.ReadyCondition, Status: metav1.ConditionTrue, Reason: "Installed"}
	}
	return metav1.Condition{Type: rkev1.ReadyCondition, Status: metav1.ConditionFalse, Reason: "Error",
		Message: "Reconciling the NodeDriver failed; retrying"}
}
