package registration

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/hub/server/settings"
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
