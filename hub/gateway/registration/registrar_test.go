package registration

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/response"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestConnection(t *testing.T) {
	hub := settings.Settings{ServerURL: "https://hub.example:8443", CACerts: []byte("PEM\n")}
	secret := types.NamespacedName{Namespace: "ns", Name: "plan"}
	signingKey := ed25519.PublicKey(bytes.Repeat([]byte{7}, ed25519.PublicKeySize))
	got, err := newConnection(hub, signingKey, secret, []byte("token"))
	must(t, err)
	config, err := clientcmd.Load([]byte(got.KubeConfig))
	must(t, err)
	cluster, user, context := config.Clusters["agent"], config.AuthInfos["agent"], config.Contexts["agent"]
	if config.CurrentContext != "agent" || context.Cluster != "agent" || context.AuthInfo != "agent" || user.Token != "token" ||
		cluster.Server != hub.ServerURL || string(cluster.CertificateAuthorityData) != "PEM\n" || got.Namespace != "ns" ||
		got.SecretName != "plan" || got.PlanSigningKey != base64.StdEncoding.EncodeToString(signingKey) {
		t.Errorf("got %+v", got)
	}
	if got, err = newConnection(hub, nil, secret, []byte("token")); err != nil || got.PlanSigningKey != "" {
		t.Errorf("without a key: %+v, %v", got, err)
	}
}

// TestWaitingForCredentials: a machine whose plan Secret the API server does not take reads why, and comes again.
func TestWaitingForCredentials(t *testing.T) {
	const quota = "creating Secret a-machine-plan: exceeded quota: small; retrying"
	ended, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	left, leave := context.WithCancel(t.Context())
	leave()
	for name, tt := range map[string]struct {
		ctx    context.Context //nolint:containedctx
		status metav1.ConditionStatus
		why    string
	}{
		"a quota":              {ended, metav1.ConditionFalse, ": " + quota},
		"nothing known":        {ended, metav1.ConditionTrue, ""},
		"the machine has gone": {left, metav1.ConditionFalse, ""},
	} {
		bootstrap := &rkev1.RKEBootstrap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
		current := bootstrap.DeepCopy()
		current.Status.Conditions = []metav1.Condition{{Type: rkev1.IdentityReadyCondition, Status: tt.status, Message: quota}}
		g := &Registrar{Options: Options{Live: known{objects: []client.Object{current}}}}
		err := g.waitingForCredentials(tt.ctx, bootstrap, types.NamespacedName{Namespace: "ns", Name: "plan"})
		want := "waiting for the hub to create the credentials of this machine (ServiceAccount ns/plan)" + tt.why
		var retry *response.Error
		if !errors.As(err, &retry) || retry.Code != http.StatusServiceUnavailable || retry.Message != want {
			t.Errorf("%s: %+v", name, err)
		}
	}
}
