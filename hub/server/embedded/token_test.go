package embedded

import (
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// TestToken: the hub is the user of admin.kubeconfig with a token and without a certificate, and no other token is accepted.
func TestToken(t *testing.T) {
	server, _ := start(t, Options{DataDir: t.TempDir()})
	hub := server.RestConfig()
	if hub.BearerToken == "" || hub.CertFile != "" || hub.KeyFile != "" {
		t.Fatalf("the hub's requests are made with %s", hub)
	}
	admin, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if admin.BearerToken != "" || len(admin.CertData) == 0 {
		t.Error("admin.kubeconfig has the token of the hub, or no certificate")
	}
	other := server.RestConfig()
	other.BearerToken += "x"
	for name, config := range map[string]*rest.Config{"hub": hub, "administrator": admin, "other token": other} {
		review, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
			&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if config == other {
			if !apierrors.IsUnauthorized(err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if who := review.Status.UserInfo; who.Username != adminName || !slices.Contains(who.Groups, "system:masters") {
			t.Errorf("%s: %+v", name, who)
		}
	}
}
