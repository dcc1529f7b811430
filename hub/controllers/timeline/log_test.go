package timeline

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
)

func TestLogMessage(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	is := func(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return condition(conditionType, status, reason, noon)
	}
	for name, test := range map[string]struct {
		conditions []metav1.Condition
		want       string
	}{
		"new": {want: " "},
		"its objects are created": {[]metav1.Condition{is("Provisioned", no, "WaitingForControlPlane"), is("Ready", no,
			"WaitingForControlPlane")}, "INFO about WaitingForControlPlane"},
		"on its way": {[]metav1.Condition{is("Provisioned", no, "WaitingForProbes"), is("Ready", unknown, "WaitingForProbes")},
			"INFO about WaitingForProbes"},
		"a user has to act": {[]metav1.Condition{is("Provisioned", no, "EtcdLost"), is("Ready", no, "EtcdLost")}, "ERROR about EtcdLost"},
		"a change later": {[]metav1.Condition{is("Provisioned", yes, "Provisioned"), is("Updated", unknown, "Delivering"), is("Ready",
			no, "x")}, "INFO about Delivering"},
		"a change that fails": {[]metav1.Condition{is("Provisioned", yes, "Provisioned"), is("Updated", no, "PlanInvalid")},
			"ERROR about PlanInvalid"},
		"done": {[]metav1.Condition{is("Provisioned", yes, "Provisioned"), is("Updated", yes, "Updated")},
			"INFO provisioning done"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope{provisioning: &provisioningv1.Cluster{Status: provisioningv1.ClusterStatus{Conditions: test.conditions}}}
			level, message := s.logMessage()
			if got := level + " " + message; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestAppendLine(t *testing.T) {
	log := ""
	for i := range 2000 {
		log = appendLine(log, fmt.Sprintf("line %d\n", i))
	}
	if len(log) > maxLogBytes || len(log) < maxLogBytes-20 {
		t.Errorf("the log has %d bytes", len(log))
	}
	first, _, _ := strings.Cut(log, "\n")
	if !strings.HasPrefix(first, "line ") || !strings.HasSuffix(log, "line 1999\n") {
		t.Errorf("it begins with %q and ends with %q", first, log[len(log)-12:])
	}
}
