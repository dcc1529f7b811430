package access

import (
	"io"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/hub/access/clusteragent"
)

// fetch gets a path from the gateway.
func fetch(t *testing.T, path string) (int, string) {
	t.Helper()
	client := httpClientOf(t)
	answer, err := client.Get(env.ServerURL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// agentRights returns a config with the rights of the manifest's ServiceAccount in the downstream cluster.
func agentRights(t *testing.T) *rest.Config {
	t.Helper()
	clientset, err := kubernetes.NewForConfig(downstream.RestConfig())
	if err != nil {
		t.Fatal(err)
	}
	token, err := clientset.CoreV1().ServiceAccounts(clusteragent.Namespace).CreateToken(t.Context(), clusteragent.ServiceAccount,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(downstream.RestConfig())
	config.BearerToken = token.Status.Token
	return config
}
