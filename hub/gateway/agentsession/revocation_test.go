package agentsession

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/access/tunnel"
	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/gateway/secretcache"
)

// held are the sessions of a replica, by what they are called in tests.
type held map[string]tunnel.Agent

func (held) Serve(http.ResponseWriter, *http.Request, tunnel.Agent) {}

func (h held) Disconnect(match func(tunnel.Agent) bool, _ string) {
	for name, agent := range h {
		if match(agent) {
			delete(h, name)
		}
	}
}

func sessionsOfTwoClusters() held {
	return held{
		"agent": {Key: "c-m-1", Identity: "c-m-1/agent-1"}, "second agent": {Key: "c-m-1", Identity: "c-m-1/agent-2"},
		"legacy": {Key: "c-m-1", Legacy: &tunnel.LegacyCluster{}}, "aggregation": {Key: "stv-cluster-c-m-1"},
		"machine": {Key: "c-m-1:m1", Identity: "serviceaccount/fleet/m1-machine-plan"}, "second machine": {Key: "c-m-1:m11",
			Identity: "serviceaccount/fleet/m11-machine-plan"},
		"other agent": {Key: "c-m-11", Identity: "c-m-11/agent-1"}, "other legacy": {Key: "c-m-11",
			Legacy: &tunnel.LegacyCluster{}}, "other machine": {Key: "c-m-11:m1"},
	}
}

// TestRevocation: what is deleted ends the sessions that it let in, and no others.
func TestRevocation(t *testing.T) {
	a := &Agents{Options{Secrets: secretcache.New(fake.NewClientset(), logr.Discard())}}
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	pretender := &corev1.ServiceAccount{ObjectMeta: meta("fleet", "pretender")}
	pretender.Labels = map[string]string{
		rkev1.ServiceAccountRoleLabel: rkev1.ServiceAccountRolePlan, rkev1.ClusterNameLabel: "one", rkev1.MachineNameLabel: "m1",
	}
	for _, tt := range []struct {
		name    string
		deleted client.Object
		ended   func(context.Context, client.Object) (func(tunnel.Agent) bool, string)
		gone    []string
	}{
		{"an agent", &managementv3.TunnelAgent{ObjectMeta: meta("c-m-1", "agent-1")}, endAgent, []string{"agent"}},
		{"a token", &managementv3.ClusterRegistrationToken{ObjectMeta: meta("c-m-1", "default-token")}, endLegacy, []string{"aggregation",
			"legacy"}},
		{"a token of machines", &managementv3.ClusterRegistrationToken{
			ObjectMeta: meta("c-m-1", "node-command-abcde"), Spec: managementv3.ClusterRegistrationTokenSpec{Purpose: managementv3.MachinesPurpose},
		}, endLegacy, nil},
		{"a token with maxUses, which no legacy agent has shown", &managementv3.ClusterRegistrationToken{
			ObjectMeta: meta("c-m-1", "import-command-abcde"), Spec: managementv3.ClusterRegistrationTokenSpec{MaxUses: 2},
		}, endLegacy, nil},
		{"a cluster", &managementv3.Cluster{ObjectMeta: meta("", "c-m-1")}, endCluster,
			[]string{"agent", "aggregation", "legacy", "machine", "second agent", "second machine"}},
		{"a machine's account", &corev1.ServiceAccount{ObjectMeta: meta("fleet", "m1-machine-plan")}, a.endMachine, []string{"machine"}},
		{"an account with the labels of a machine's", pretender, a.endMachine, nil},
		{"another account", &corev1.ServiceAccount{ObjectMeta: meta("c-m-1", "default")}, a.endMachine, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sessions := sessionsOfTwoClusters()
			if match, reason := tt.ended(t.Context(), tt.deleted); match != nil {
				sessions.Disconnect(match, reason)
			}
			var gone []string
			for name := range sessionsOfTwoClusters() {
				if _, left := sessions[name]; !left {
					gone = append(gone, name)
				}
			}
			slices.Sort(gone)
			if !slices.Equal(gone, tt.gone) {
				t.Errorf("ended are %q, want %q", gone, tt.gone)
			}
		})
	}
}

// TestRecheck: a session that began while what let it in was taken back ends; one about which nothing is known goes on.
func TestRecheck(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		left int
	}{
		"good": {nil, 9}, "revoked": {errBadCredential, 8}, "the API does not answer": {errors.New("timeout"),
			9}, "starting": {secretcache.ErrNotSynced, 9},
	} {
		sessions := sessionsOfTwoClusters()
		a := &Agents{Options{Logger: logr.Discard(), Tunnels: sessions}}
		a.recheck(&Caller{agent: sessions["legacy"], valid: func(context.Context) error { return tt.err }})
		if len(sessions) != tt.left {
			t.Errorf("%s: %d sessions are left, want %d", name, len(sessions), tt.left)
		}
	}
}
