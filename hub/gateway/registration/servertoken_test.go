package registration

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/response"
)

// TestServerToken: only a server that certainly has the data of another cluster is refused.
func TestServerToken(t *testing.T) {
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "first"}}
	state := func(data map[string][]byte) []client.Object {
		return []client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "first-rke-state"}, Data: data}}
	}
	other := state(map[string][]byte{"serverToken": []byte("other"), "agentToken": []byte("agent"), "newServerToken": []byte("new"),
		"serverToken-20260101T000000Z": []byte("replaced")})
	for name, tc := range map[string]struct {
		token   string
		objects []client.Object
		refused bool
	}{
		"no server":                      {objects: other},
		"of a cluster that was deleted":  {token: "deleted", objects: other, refused: true},
		"of this cluster":                {token: "other", objects: other},
		"with a token that was replaced": {token: "replaced", objects: other},
		"with the next token":            {token: "new", objects: other},
		"of a lost cluster":              {token: "lost", objects: state(map[string][]byte{"serverToken": []byte("K10ab::server:lost")})},
		"before there are tokens":        {token: "deleted"},
		"tokens that are empty":          {token: "deleted", objects: state(nil)},
	} {
		r := &registration{}
		if tc.token != "" {
			r.ServerTokenHash = tokens.Hash(tc.token)
		}
		g := &Registrar{Options: Options{Live: known{objects: tc.objects}}}
		err := g.checkServerToken(t.Context(), cluster, r)
		if !tc.refused {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		// The install script prints no more than 400 characters of an answer.
		if !response.IsCode(err, http.StatusConflict) || len(err.Error()) > 400 ||
			!strings.Contains(err.Error(), "run `system-agent leave --purge-distribution`") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestServerTokenOfNewMachine: the machine is refused before its registration counts as a use of the registration token.
func TestServerTokenOfNewMachine(t *testing.T) {
	cluster := &provisioningv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "first",
		Annotations: map[string]string{rkev1.ManagementClusterNameAnnotation: "c-m-1"}},
		Spec: provisioningv1.ClusterSpec{RKEConfig: &provisioningv1.RKEConfig{}}}
	management := &managementv3.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c-m-1",
		Labels: map[string]string{rkev1.OwnerClusterNamespaceLabel: "ns", rkev1.OwnerClusterNameLabel: "first"}}}
	state := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "first-rke-state"},
		Data: map[string][]byte{"serverToken": []byte("other")}}
	all := known{objects: []client.Object{cluster, management, state}}
	g := &Registrar{Options: Options{Client: all, Live: all}}
	token := &managementv3.ClusterRegistrationToken{Spec: managementv3.ClusterRegistrationTokenSpec{ClusterName: "c-m-1"}}
	headers := http.Header{"X-Cattle-Id": {"abc"}, "X-Cattle-Role-Etcd": {"true"}, "X-Cattle-Server-Token-Hash": {tokens.Hash("deleted")}}
	if _, err := g.connectCustom(t.Context(), token, Request{Headers: headers}); !response.IsCode(err, http.StatusConflict) ||
		!strings.Contains(err.Error(), "runs a server of another cluster") {
		t.Errorf("got %v", err)
	}
}
