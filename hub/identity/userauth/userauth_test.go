package userauth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	ctrlfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/testenv/fakeclient"
)

// cluster plays the management cluster: it knows the token "good" and all that end with ".good", and counts how often it is asked.
type cluster struct {
	*fake.Clientset
	reviews int
	err     error
}

func newCluster(objects ...runtime.Object) *cluster {
	c := &cluster{Clientset: fake.NewClientset(objects...)}
	c.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.reviews++
		if c.err != nil {
			return true, nil, c.err
		}
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if review.Spec.Token == "good" || strings.HasSuffix(review.Spec.Token, ".good") {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: "jane", UID: "7", Groups: []string{"ops"}, Extra: map[string]authenticationv1.ExtraValue{"team": {"blue"}},
			}}
		} else {
			review.Status.Error = "invalid bearer token"
		}
		return true, review, nil
	})
	return c
}

func newAuthenticator(t *testing.T, c *cluster) *Authenticator {
	t.Helper()
	scheme := fakeclient.Scheme(t, managementv3.AddToScheme)
	objects := ctrlfake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&managementv3.Token{}).Build()
	a, err := New(Options{Clientset: c, Tokens: newIssuer(t), Client: objects, APIReader: objects, Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func request(authorization string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

func TestTokenOfTheManagementCluster(t *testing.T) {
	c := newCluster()
	a := newAuthenticator(t, c)
	for range 3 {
		r := request("Bearer good")
		got, ok, err := a.AuthenticateRequest(r)
		if !ok || err != nil {
			t.Fatalf("refused: %v", err)
		}
		if u := got.User; u.GetName() != "jane" || u.GetUID() != "7" || !cmp.Equal(u.GetGroups(), []string{"ops", "system:authenticated"}) ||
			!cmp.Equal(u.GetExtra(), map[string][]string{"team": {"blue"}}) || len(got.Audiences) != 0 {
			t.Errorf("got %+v for %v", u, got.Audiences)
		}
		if r.Header.Get("Authorization") != "" {
			t.Error("the token stays in the request")
		}
	}
	if c.reviews != 1 {
		t.Errorf("%d reviews of one token", c.reviews)
	}
}

func TestWebSocketToken(t *testing.T) {
	r := request("")
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	r.Header.Set("Sec-WebSocket-Protocol",
		"base64url.bearer.authorization.k8s.io."+base64.RawURLEncoding.EncodeToString([]byte("good"))+", v5.channel.k8s.io")
	if got, ok, err := newAuthenticator(t, newCluster()).AuthenticateRequest(r); !ok || got.User.GetName() != "jane" {
		t.Errorf("refused: %v", err)
	}
	if left := r.Header.Get("Sec-WebSocket-Protocol"); left != "v5.channel.k8s.io" {
		t.Errorf("protocols that are left: %q", left)
	}
}

// tokenOf is the part of a JSON Web Token that is read before it is verified.
func tokenOf(subject, id, signature string) string {
	payload := fmt.Sprintf(`{"iss":"https://issuer","sub":%q,"jti":%q}`, subject, id)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + "." + signature
}

// TestWrongTokens checks that a client that guesses costs the management cluster little, and keeps nobody else at its address out for long.
func TestWrongTokens(t *testing.T) {
	c := newCluster()
	a := newAuthenticator(t, c)
	for _, token := range []string{"good", tokenOf("jane", "1", "good")} {
		if _, ok, _ := a.AuthenticateRequest(request("Bearer " + token)); !ok {
			t.Fatal("the good token is refused")
		}
	}
	tooMany := 0
	for i := range 200 {
		_, ok, err := a.AuthenticateRequest(request("Bearer bad" + time.Duration(i).String()))
		if ok || err == nil {
			t.Fatalf("a wrong token: %v, %v", ok, err)
		}
		if errors.Is(err, ErrTooMany) {
			tooMany++
		}
	}
	if c.reviews > 2+failureBurst+10 || tooMany < 150 {
		t.Errorf("%d reviews, %d answers that say too many", c.reviews, tooMany)
	}
	if _, ok, err := a.AuthenticateRequest(request("Bearer good")); !ok {
		t.Errorf("a token that is known to be good: %v", err)
	}
	if _, ok, err := a.AuthenticateRequest(request("Bearer " + tokenOf("jane", "2", "good"))); !ok {
		t.Errorf("the next token of somebody who is known: %v", err)
	}
	if _, _, err := a.AuthenticateRequest(request("Bearer " + tokenOf("joe", "1", "good"))); !errors.Is(err, ErrTooMany) {
		t.Errorf("a token of somebody who is not known: %v", err)
	}
	for i := range failureBurst + 10 {
		_, _, _ = a.AuthenticateRequest(request("Bearer " + tokenOf("jane", fmt.Sprint(i), "bad")))
	}
	if _, _, err := a.AuthenticateRequest(request("Bearer " + tokenOf("jane", "3", "good"))); !errors.Is(err, ErrTooMany) {
		t.Errorf("a new token after many wrong ones in the same name: %v", err)
	}
	if _, ok, err := a.AuthenticateRequest(request("Bearer " + tokenOf("jane", "2", "good"))); !ok {
		t.Errorf("a token that is known, after many wrong ones in the same name: %v", err)
	}
	other := request("Bearer bad")
	other.RemoteAddr = "198.51.100.7:1"
	if _, _, err := a.AuthenticateRequest(other); errors.Is(err, ErrTooMany) {
		t.Error("another address suffers too")
	}
}

func TestNobody(t *testing.T) {
	a := newAuthenticator(t, newCluster())
	for name, authorization := range map[string]string{"nothing": "", "a password": "Basic Z29vZDpnb29k", "an empty token": "Bearer ",
		"a huge one": "Bearer " + string(make([]byte, maxTokenLength+1))} {
		if got, ok, _ := a.AuthenticateRequest(request(authorization)); ok {
			t.Errorf("%s is %v", name, got.User)
		}
	}
}

func TestAPIDoesNotAnswer(t *testing.T) {
	c := newCluster()
	c.err = errors.New("connection refused")
	a := newAuthenticator(t, c)
	if _, ok, err := a.AuthenticateRequest(request("Bearer good")); ok || !errors.Is(err, ErrUnavailable) {
		t.Errorf("%v, %v", ok, err)
	}
	c.err = nil
	if _, ok, err := a.AuthenticateRequest(request("Bearer good")); !ok {
		t.Errorf("a failure is remembered: %v", err)
	}
}

// TestCertificate checks that certificates of the management cluster's authority count, and those of others do not.
func TestCertificate(t *testing.T) {
	ours, theirs := authority(t), authority(t)
	c := newCluster(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: clientCANamespace, Name: clientCAConfigMap},
		Data:       map[string]string{clientCAKey: string(ours.CertPEM())},
	})
	a := newAuthenticator(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- a.Start(ctx) }()
	with := func(ca *pki.Pair, usage x509.ExtKeyUsage) *http.Request {
		leaf, err := pki.Issue(pki.Request{CommonName: "ann", Organization: []string{"ops"}, Usage: usage, Lifetime: time.Hour}, ca, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		r := request("")
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf.Cert}}
		return r
	}
	deadline := time.Now().Add(10 * time.Second)
	for _, ok := a.clientCA.VerifyOptions(); !ok && time.Now().Before(deadline); _, ok = a.clientCA.VerifyOptions() {
		time.Sleep(10 * time.Millisecond)
	}
	got, ok, err := a.AuthenticateRequest(with(ours, x509.ExtKeyUsageClientAuth))
	if !ok || got.User.GetName() != "ann" || !cmp.Equal(got.User.GetGroups(), []string{"ops", "system:authenticated"}) {
		t.Errorf("a client's certificate: %v", err)
	}
	for name, r := range map[string]*http.Request{
		"another authority's": with(theirs, x509.ExtKeyUsageClientAuth), "a server's": with(ours, x509.ExtKeyUsageServerAuth),
	} {
		if got, ok, _ := a.AuthenticateRequest(r); ok {
			t.Errorf("%s certificate is %v", name, got.User)
		}
	}
	cancel()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func authority(t *testing.T) *pki.Pair {
	t.Helper()
	ca, err := pki.Issue(pki.Request{CommonName: "ca", IsCA: true, Lifetime: time.Hour}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}
