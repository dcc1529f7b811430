package access

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/rancher/remotedialer"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/testenv"
)

// legacyToken is the ServiceAccount token that an agent of another hub sends.
const legacyToken = "the-token-of-a-stock-agent"

func legacyHeaders(token string) map[string]string {
	params := fmt.Sprintf(`{"cluster":{"address":"10.43.0.1:443","token":%q,"caCert":%q}}`, legacyToken,
		base64.StdEncoding.EncodeToString(env.CACerts))
	return map[string]string{"X-API-Tunnel-Token": token, "X-API-Tunnel-Params": base64.StdEncoding.EncodeToString([]byte(params))}
}

// TestLegacyAgent: an agent of another hub connects with the library and its registration token, until that is deleted.
func TestLegacyAgent(t *testing.T) {
	t.Parallel()
	_, management := newCluster(t)
	token, crt := newToken(t, management, managementv3.AgentsPurpose)
	for _, path := range []string{"/v3/connect/register", "/v3/connect"} {
		header := http.Header{}
		for name, value := range legacyHeaders(token) {
			header.Set(name, value)
		}
		ended := connectLibrary(t, path, header, management)
		t.Cleanup(func() { <-ended })
	}
	aggregation := openTunnel(t, "/v3/connect", bearer("stv-cluster-"+token))
	awaitTunnelLog(t, "stv-cluster-"+management)
	conn := openTunnel(t, "/v3/connect", legacyHeaders(token))

	bad := legacyHeaders(token)
	bad["X-API-Tunnel-Params"] = "x"
	if code, text := openRefused(t, "/v3/connect", bad); code != http.StatusBadRequest || !strings.HasPrefix(text, "X-API-Tunnel-Params: ") {
		t.Errorf("with parameters that cannot be read: %d %s", code, text)
	}
	for name, headers := range map[string]map[string]string{
		"no token": {}, "an unknown token": legacyHeaders("aaaaaaaaaa.x"), "another way": bearer("stv-cluster-x"),
		"a made up credential": bearer("a.b.c"),
	} {
		if code, text := openRefused(t, "/v3/connect", headers); code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", name, code, text)
		}
	}
	if code, text := get(t, "/v3/connect", legacyHeaders(token)); code != http.StatusBadRequest || !strings.Contains(text, "websocket") {
		t.Errorf("without websocket: %d %s", code, text)
	}
	env.Delete(t, crt)
	for name, conn := range map[string]*websocket.Conn{"tunnel": conn, "tunnel for aggregation": aggregation} {
		if err := awaitClosed(t, conn, time.Minute); strings.Contains(err.Error(), "i/o timeout") {
			t.Errorf("the %s stays open although its token was deleted: %v", name, err)
		}
	}
}

// connectLibrary connects as agents of other hubs do, and waits until the hub has the session. The channel is closed when that has ended.
func connectLibrary(t *testing.T, path string, header http.Header, management string) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended, connected := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		_ = remotedialer.ConnectToProxy(ctx, strings.Replace(env.ServerURL, "https://", "wss://", 1)+path, header,
			func(string, string) bool { return true },
			&websocket.Dialer{TLSClientConfig: env.Trust(), HandshakeTimeout: time.Minute, NetDialContext: dialerOf(t).DialContext},
			func(context.Context, *remotedialer.Session) error { close(connected); return nil })
	}()
	select {
	case <-connected:
	case <-ended:
		t.Fatalf("the library could not connect to %s", path)
	}
	awaitTunnelLog(t, management)
	return ended
}

// TestLegacyTokenSecret: tokens in a Secret as another hub writes it are accepted, and the Secret does not hold them in plain afterwards.
func TestLegacyTokenSecret(t *testing.T) {
	t.Parallel()
	const whole = "bcdfghjklmnpqrstvwxz2456789bcdfghjklmnpqrstvwxz2456789"
	_, management := newCluster(t)
	crt := &managementv3.ClusterRegistrationToken{ObjectMeta: metav1.ObjectMeta{Namespace: management, Name: "adopted"}}
	crt.Spec.ClusterName = management
	env.Create(t, crt)
	testenv.Condition(t, env, crt, "Ready", metav1.ConditionTrue, "")
	secret := &corev1.Secret{}
	env.Get(t, management, crt.Status.TokenSecretName, secret)
	previous := string(secret.Data[managementv3.TokenIDKey])
	patch := fmt.Sprintf(`{"data":{"token":%q,"tokenID":null,"tokenHash":null}}`, base64.StdEncoding.EncodeToString([]byte(whole)))
	if err := env.Client.Patch(t.Context(), secret, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	testenv.Until(t, "the Secret to hold hashes only", func() error {
		env.Get(t, management, crt.Status.TokenSecretName, secret)
		switch {
		case len(secret.Data[managementv3.TokenKey]) > 0:
			return fmt.Errorf("it has the keys of a whole token")
		case !bytes.Equal(secret.Data[managementv3.PreviousTokenHashKey], []byte(tokens.Hash(whole))):
			return fmt.Errorf("the token is not known any more")
		}
		return nil
	})
	if id := string(secret.Data[managementv3.TokenIDKey]); id == "" || id == previous {
		t.Errorf("the hub has not created a token of its own: %q", id)
	}
	awaitToken(t, whole)
	if got := awaitCredential(t, whole, idOne); got.code != http.StatusOK {
		t.Errorf("the token of another hub: %d %s", got.code, got.text)
	}
}
