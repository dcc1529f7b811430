package clusterregistrationtoken

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/server/settings"
)

var ownedConditions = []string{managementv3.ReadyCondition}

// setStatus sets the status. Commands that could not work are not shown.
func setStatus(s *scope, hub settings.Settings) {
	status := &s.crt.Status
	status.ObservedGeneration = s.crt.Generation
	ready := metav1.Condition{Type: managementv3.ReadyCondition, Status: metav1.ConditionTrue, Reason: "TokenReady"}
	switch {
	case s.err != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "Error", fmt.Sprintf("Writing the token failed; retrying: %v", s.err)
	case s.waiting != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, s.waiting.Reason, s.waiting.Message
	case s.tokens == nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "WaitingForToken", "Waiting for the token to be issued"
	case s.expired:
		ready.Status, ready.Reason = metav1.ConditionFalse, "Expired"
		ready.Message = "The token has expired; create another ClusterRegistrationToken, for instance with \"hub node-command\""
	case hub.ServerURL == "":
		ready.Status, ready.Reason = metav1.ConditionFalse, "NoServerURL"
		ready.Message = "Commands need the URL of the hub: set the flag --server-url of the hub"
	}
	conditions.Set(s.crt, ready)
	if s.err != nil {
		return
	}
	if s.tokens == nil {
		*status = managementv3.ClusterRegistrationTokenStatus{Conditions: status.Conditions, ObservedGeneration: status.ObservedGeneration}
		return
	}
	status.TokenSecretName = managementv3.TokenSecretPrefix + s.crt.Name
	status.ExpiresAt = timeOrNil(s.tokens.ExpiresAt)
	status.GracePeriodExpiresAt = timeOrNil(s.tokens.GraceExpiresAt)
	status.Uses = int64(len(s.tokens.UsedBy))
	if s.imported {
		if s.crt.Spec.Serves(managementv3.AgentsPurpose) {
			setImportCommands(s.crt, hub)
		}
		return
	}
	status.NodeCommand, status.InsecureNodeCommand, status.VerifiedNodeCommand = "", "", ""
	if s.crt.Spec.Serves(managementv3.MachinesPurpose) {
		status.NodeCommand = nodeCommand(hub, s.env, plainDownload)
		status.InsecureNodeCommand = nodeCommand(hub, s.env, insecureDownload)
		status.VerifiedNodeCommand = nodeCommand(hub, s.env, verifiedDownload)
	}
}

func timeOrNil(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}
