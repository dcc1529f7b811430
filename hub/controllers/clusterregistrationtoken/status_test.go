package clusterregistrationtoken

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/cluster-api/util/conditions"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/cause"
)

// TestKnownTokenStatus: commands stay while an error keeps the hub from looking again; they go where they could not work.
func TestKnownTokenStatus(t *testing.T) {
	hub := settings.Settings{ServerURL: "https://hub.example"}
	crt := &managementv3.ClusterRegistrationToken{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	setStatus(&scope{crt: crt, tokens: &tokens.Registration{Current: own("a"), ExpiresAt: noon}}, hub)
	known := crt.Status.DeepCopy()
	if known.NodeCommand == "" || known.TokenSecretName == "" {
		t.Fatalf("the status is %+v", known)
	}
	setStatus(&scope{crt: crt, err: errors.New("the API server is unreachable")}, hub)
	if diff := cmp.Diff(*known, crt.Status, cmpopts.IgnoreFields(crt.Status, "Conditions")); diff != "" {
		t.Errorf("an error changed what was known (-known +reported):\n%s", diff)
	}
	if ready := conditions.Get(crt, managementv3.ReadyCondition); ready.Status != metav1.ConditionFalse || ready.Reason != "Error" {
		t.Errorf("Ready is %+v", ready)
	}
	setStatus(&scope{crt: crt, waiting: cause.New("ClusterNotFound", "there is none")}, hub)
	if crt.Status.NodeCommand != "" || crt.Status.TokenSecretName != "" {
		t.Errorf("commands are left that cannot work: %+v", crt.Status)
	}
}
