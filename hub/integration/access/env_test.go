package access

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	"github.com/drover-dev/drover/hub/identity/usertokens"
	"github.com/drover-dev/drover/hub/testenv"
)

// connected is a Cluster with a fake agent.
type connected struct {
	*provisioningv1.Cluster
	// id is the name of the management Cluster.
	id    string
	agent *testenv.FakeAgent
}

// newConnected creates a Cluster and connects an agent for it.
func newConnected(t *testing.T) *connected {
	t.Helper()
	cluster, management := newCluster(t)
	return &connected{Cluster: cluster, id: management, agent: env.NewAgent(t, management)}
}

// userToken requests a token for a cluster.
func userToken(t *testing.T, c *connected, token string, request usertokens.Request) usertokens.Answer {
	t.Helper()
	request.Cluster = c.id
	var answer usertokens.Answer
	testenv.Until(t, "a token of the hub's own", func() error { return env.Post(t, usertokens.Path, token, request, &answer) })
	return answer
}

// proxyConfig returns a config without credentials for a cluster behind the hub.
func proxyConfig(c *connected) *rest.Config {
	return &rest.Config{
		Host: env.ServerURL + "/k8s/clusters/" + c.id, TLSClientConfig: rest.TLSClientConfig{CAData: env.CACerts}, QPS: -1,
	}
}

func withToken(c *connected, token string) kubernetes.Interface {
	config := proxyConfig(c)
	config.BearerToken = token
	return kubernetes.NewForConfigOrDie(config)
}

// asAdmin returns a client with the certificate of the hub's administrator.
func asAdmin(c *connected, change ...func(*rest.Config)) kubernetes.Interface {
	config := proxyConfig(c)
	config.CertFile, config.KeyFile = env.Config.CertFile, env.Config.KeyFile
	for _, f := range change {
		f(config)
	}
	return kubernetes.NewForConfigOrDie(config)
}

// newServiceAccount creates a ServiceAccount in the management cluster, and returns its user name and a token.
func newServiceAccount(t *testing.T, c *connected, name string) (user, token string) {
	t.Helper()
	env.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: name}})
	management := kubernetes.NewForConfigOrDie(env.Config)
	review, err := management.CoreV1().ServiceAccounts(c.Namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return "system:serviceaccount:" + c.Namespace + ":" + name, review.Status.Token
}

// grantAccess grants a user of the management cluster access to a cluster, and returns the RoleBinding.
func grantAccess(t *testing.T, c *connected, user string) *rbacv1.RoleBinding {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: c.Namespace, Name: "reach"}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	env.Create(t, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{provisioningv1.GroupVersion.Group}, Resources: []string{"clusters/proxy"}, ResourceNames: []string{c.Name},
		Verbs: []string{"get"},
	}}}, binding)
	return binding
}

// whoAmI returns the user that a cluster takes the caller for.
func whoAmI(t *testing.T, client kubernetes.Interface) (authenticationv1.UserInfo, error) {
	t.Helper()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return review.Status.UserInfo, nil
}

// awaitCode waits until a cluster responds to a client with a code, 200 being success, and returns the user or the message.
func awaitCode(t *testing.T, client kubernetes.Interface, code int32) (authenticationv1.UserInfo, string) {
	t.Helper()
	var who authenticationv1.UserInfo
	var message string
	testenv.Until(t, fmt.Sprintf("an answer with code %d", code), func() error {
		var err error
		var status apierrors.APIStatus
		who, err = whoAmI(t, client)
		switch {
		case err == nil && code == http.StatusOK:
			return nil
		case errors.As(err, &status) && status.Status().Code == code:
			message = status.Status().Message
			return nil
		case err == nil:
			return fmt.Errorf("it is %+v", who)
		}
		return err
	})
	return who, message
}
