package agentsession

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/gateway/registration"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
	"github.com/drover-dev/drover/hub/util/response"
)

// TestLegacyTokens: a token whose uses are counted opens no tunnel of a legacy agent, which nobody counts.
func TestLegacyTokens(t *testing.T) {
	token, err := tokens.NewRegistrationToken()
	must(t, err)
	for name, tt := range map[string]struct {
		spec managementv3.ClusterRegistrationTokenSpec
		code int
	}{
		"of another hub": {code: 0},
		"for agents":     {spec: managementv3.ClusterRegistrationTokenSpec{Purpose: managementv3.AgentsPurpose}},
		"for machines": {spec: managementv3.ClusterRegistrationTokenSpec{Purpose: managementv3.MachinesPurpose},
			code: http.StatusForbidden},
		"with maxUses": {spec: managementv3.ClusterRegistrationTokenSpec{Purpose: managementv3.AgentsPurpose, MaxUses: 2},
			code: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			crt := &managementv3.ClusterRegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: "c-m-1", Name: "x"}, Spec: tt.spec}
			crt.Spec.ClusterName = crt.Namespace
			secrets := secretcache.New(clientset.NewClientset(), logr.Discard())
			must(t, secrets.Registrations.Add(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: crt.Namespace, Name: managementv3.TokenSecretPrefix + crt.Name},
				Data: map[string][]byte{managementv3.TokenIDKey: []byte(tokens.RegistrationID(token)),
					managementv3.TokenHashKey: []byte(tokens.Hash(token))},
			}))
			a := &Agents{Options{Registrar: registration.New(registration.Options{Secrets: secrets, Logger: logr.Discard(),
				Client: fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, managementv3.AddToScheme)).WithObjects(crt).Build()})}}
			r := httptest.NewRequest(http.MethodGet, "/v3/connect", nil)
			r.Header.Set("Authorization", "Bearer "+legacyAPIPrefix+token)
			caller, err := a.Authenticate(r, TunnelToken(r))
			switch {
			case tt.code == 0 && (err != nil || caller.agent.Key != legacyAPIPrefix+crt.Namespace || caller.valid(t.Context()) != nil):
				t.Errorf("got %+v, %v", caller, err)
			case tt.code != 0 && !response.IsCode(err, tt.code):
				t.Errorf("got %v, want %d", err, tt.code)
			}
		})
	}
}

// TestRevoked: a token that is restricted ends the sessions of those who may no longer show it. Other changes end none.
func TestRevoked(t *testing.T) {
	token := func(purpose managementv3.RegistrationPurpose, maxUses int64) *managementv3.ClusterRegistrationToken {
		return &managementv3.ClusterRegistrationToken{Spec: managementv3.ClusterRegistrationTokenSpec{Purpose: purpose, MaxUses: maxUses}}
	}
	recreated := token("", 0)
	recreated.UID = "another"
	for name, tt := range map[string]struct {
		before, after *managementv3.ClusterRegistrationToken
		want          bool
	}{
		"the same":               {token("", 0), token("", 0), false},
		"recreated":              {token("", 0), recreated, true},
		"restricted to agents":   {token("", 0), token(managementv3.AgentsPurpose, 0), false},
		"restricted to machines": {token("", 0), token(managementv3.MachinesPurpose, 0), true},
		"restricted in its uses": {token(managementv3.AgentsPurpose, 0), token(managementv3.AgentsPurpose, 1), true},
		"was for machines only":  {token(managementv3.MachinesPurpose, 0), token(managementv3.MachinesPurpose, 1), false},
	} {
		if got := revoked(tt.before, tt.after); got != tt.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// TestEndRevoked: without its Secret a token is worth nothing, also for those who are connected with it.
func TestEndRevoked(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "c-m-1", Name: name} }
	from := fake.NewClientBuilder().WithScheme(fakeclient.Scheme(t, managementv3.AddToScheme)).WithObjects(
		&managementv3.ClusterRegistrationToken{ObjectMeta: meta("default-token")},
		&managementv3.ClusterRegistrationToken{ObjectMeta: meta("machines"),
			Spec: managementv3.ClusterRegistrationTokenSpec{Purpose: managementv3.MachinesPurpose}},
	).Build()
	for name, left := range map[string]int{"crt-token-default-token": 7, "crt-token-machines": 9, "crt-token-deleted": 9, "other": 9} {
		sessions := sessionsOfTwoClusters()
		a := &Agents{Options{Client: from, Tunnels: sessions}}
		a.endRevoked(t.Context(), &corev1.Secret{ObjectMeta: meta(name)})
		if len(sessions) != left {
			t.Errorf("%s: %d sessions are left, want %d", name, len(sessions), left)
		}
	}
}
